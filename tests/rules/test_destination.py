"""Deliveries go to the world, not into the network of the service, however the address is written."""

import pytest

from holdfast.errors import OptionInvalid
from holdfast.rules.destination import Destination, destination, is_public

PRIVATE = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",  # noqa: S104 - an address to refuse
    "224.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "::1",
    "::",
    "fe80::1%eth0",
    "fc00::1",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "2002:7f00:1::",
    # Translation within a network, site-local, IPv4 in forms that are no longer used, examples, not assigned.
    "64:ff9b:1::a00:1",
    "fec0::1",
    "::127.0.0.1",
    "::10.0.0.1",
    "::ffff:0:127.0.0.1",
    "3fff::1",
    "5f00::1",
]
PUBLIC = ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "64:ff9b::808:808", "2002:808:808::"]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_of_this_machine_or_a_private_network_is_not_public(address: str) -> None:
    """Also where it is wrapped into another one."""
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_world_is_public(address: str) -> None:
    """Deliveries may go there."""
    assert is_public(address)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.com/hook?a=1", Destination("https", "example.com", 443, "/hook?a=1")),
        ("http://Example.com:8080", Destination("http", "example.com", 8080, "/")),
        ("http://[::1]:1/x", Destination("http", "::1", 1, "/x")),
    ],
)
def test_a_url_is_taken_apart(url: str, expected: Destination) -> None:
    """Its host, its port and what is asked for there."""
    assert destination(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "ftp://example.com",
        "file:///etc/passwd",
        "https://",
        "https://user:secret@example.com",
        "https://example.com/#part",
        "https://example.com:99999",
        "https://a..b/",
        "https://" + "a" * 80 + ".com/",
        "https://ex ample.com/",
        "https://exämple.com/",
        "https://example.com/a b\r\nHost: x",
        "https://example.com/" + "x" * 2000,
    ],
)
def test_nothing_else_is_a_destination(url: str) -> None:
    """A name and password in it are not repeated in the error."""
    with pytest.raises(OptionInvalid) as caught:
        destination(url)
    assert "secret" not in str(caught.value)
