"""Where deliveries may go: not into the network that the service itself stands in, unless that is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from holdfast.errors import OptionInvalid

PORTS = {"http": 80, "https": 443}
LONGEST_URL = 2000
# Of IPv6, what IANA assigns to the world so far, and of that the addresses of examples (RFC 9637), of which
# older Pythons do not know.
_ASSIGNED, _EXAMPLES = ip_network("2000::/3"), ip_network("3fff::/20")


@dataclass(frozen=True, slots=True)
class Destination:
    """A URL, taken apart: *target* is its path and query."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def origin(self) -> str:
        """Where it is, without its target, which may hold a secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def destination(url: str) -> Destination:
    """Take a URL apart; raises `OptionInvalid` for one that nothing can be delivered to."""
    try:
        parts = urlsplit(url)
        port = parts.port
        # A resolver is asked for names of labels of up to 63 letters each.
        (parts.hostname or "").encode("idna")
    except ValueError as error:
        raise OptionInvalid("url", url, f"give an address such as https://host/path ({error})") from None
    if parts.scheme not in PORTS or not parts.hostname or len(url) > LONGEST_URL or not url.isprintable():
        raise OptionInvalid("url", url, "give an address such as https://host/path")
    if (
        parts.username is not None
        or parts.password is not None
        or parts.fragment
        or " " in url
        or not url.isascii()
    ):
        raise OptionInvalid("url", parts.hostname, "give it without user, password, fragment and blanks")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Destination(parts.scheme, parts.hostname, port or PORTS[parts.scheme], target)


def shown_origin(url: str) -> str:
    """Return where a stored URL leads, without what may be secret in it; one put in by hand may be none."""
    try:
        return destination(url).origin
    except OptionInvalid:
        return "no address that can be read"


def is_public(address: str) -> bool:
    """Read whether an IP address is anybody's, and not one of this machine or of a private network."""
    found = ip_address(address.partition("%")[0])
    inner = _inner(found)
    if inner is not None:
        return found.is_global and is_public(str(inner))
    if isinstance(found, IPv6Address) and (found not in _ASSIGNED or found in _EXAMPLES):
        return False
    return found.is_global and not found.is_multicast


def leads_inside(host: str) -> bool:
    """Read whether *host* stands for this machine or a private network without anybody being asked."""
    try:
        return not is_public(host)
    except ValueError:
        return host == "localhost"


def _inner(address: IPv4Address | IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 one leads to."""
    if isinstance(address, IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    # 64:ff9b::/96, the translation of a whole IPv4 internet.
    return IPv4Address(int(address) & 0xFFFFFFFF) if int(address) >> 32 == 0x64FF9B << 64 else None
