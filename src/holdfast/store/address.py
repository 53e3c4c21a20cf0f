"""Checks the address of a database before a driver stumbles over it in words of its own."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from holdfast.errors import SettingInvalid

_SCHEMES = ("postgresql://", "postgres://")
_PORT = re.compile(r"(\[[^\]]*\]|[^:]*)(:\d*)?")


def checked_address(address: str) -> str:
    """Return *address* if it has the form of one; raises `SettingInvalid`, without its password."""
    if not isinstance(address, str) or not address.startswith(_SCHEMES):
        msg = "the address of the database is not usable: give one such as postgresql://user@host/name"
        raise SettingInvalid(msg, setting="database_url")
    try:
        hosts = urlsplit(address).netloc.rpartition("@")[2]
    except ValueError:
        hosts = "::"
    if not all(_PORT.fullmatch(host) for host in hosts.split(",")):
        msg = (
            "the address of the database is not usable: what stands for its port is no number;"
            " write / : @ # ? and % in a password as %2F %3A %40 %23 %3F and %25"
        )
        raise SettingInvalid(msg, setting="database_url")
    return address
