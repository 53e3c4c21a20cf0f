"""Checks the address of a database before a driver stumbles over it in words of its own."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlencode

from holdfast.errors import SettingInvalid

_SCHEMES = ("postgresql://", "postgres://")
# What may be shown of the options of an address; others may hold secrets.
_SHOWN = frozenset({"host", "port", "user", "dbname", "database"})
_ADDRESS = re.compile(
    r"(?s)(?P<scheme>[^:]*)://(?:(?P<user>[^/?#]*)@)?(?P<hosts>[^/?#]*)"
    r"(?P<rest>(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?.*)"
)
# Stands for what is secret.
HIDDEN = "***"
_PORT = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::(\d{0,9}))?")
_MOST_PORT = 65_535


def checked_address(address: str) -> str:
    """Return *address* if it has the form of one; raises `SettingInvalid`, without its password."""
    if not isinstance(address, str) or not address.startswith(_SCHEMES):
        msg = "the address of the database is not usable: give one such as postgresql://user@host/name"
        raise SettingInvalid(msg, setting="database_url")
    for host in _parts(address)["hosts"].split(","):
        found = _PORT.fullmatch(host)
        if found is None:
            msg = (
                "the address of the database is not usable: what stands for its port is no number;"
                " write / : @ # ? and % in a password as %2F %3A %40 %23 %3F and %25"
            )
            raise SettingInvalid(msg, setting="database_url")
        if not 0 < int(found[2] or 1) <= _MOST_PORT:
            msg = f"the address of the database is not usable: ports go from 1 to 65535, not to {found[2]}"
            raise SettingInvalid(msg, setting="database_url")
    return address


def shown_address(address: str) -> str:
    """Return *address* as it may be shown: without its password and without options that may hold one.

    Where it is not clear what is the password, nothing of it is shown.
    """
    try:
        parts = _parts(checked_address(address))
    except SettingInvalid:
        return HIDDEN
    # An @ behind the hosts ends a password with / ? or # in it, whose beginning passes for a port.
    if "@" in parts["rest"]:
        return HIDDEN
    name = parts["user"].partition(":")[0]
    place = f"{name}@{parts['hosts']}" if name else parts["hosts"]
    query = urlencode([(key, value) for key, value in parse_qsl(parts["query"]) if key in _SHOWN], safe="/:,")
    return f"{parts['scheme']}://{place}{parts['path']}" + (f"?{query}" if query else "")


def _parts(address: str) -> dict[str, str]:
    # Not urlsplit: newer ones refuse a list of hosts in which one is an IPv6 address.
    found = _ADDRESS.match(address)
    assert found is not None  # noqa: S101 - checked_address was here first: there is a scheme, the rest is optional
    return found.groupdict(default="")
