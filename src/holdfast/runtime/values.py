"""How the value of a setting is read, be it text from the environment or a value from a file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_network
from typing import Any

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"(\d{1,15})\s*(B|KiB|MiB|GiB)?")
_BYTES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_TRUTH = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


@dataclass(frozen=True, slots=True)
class Rule:
    """What a setting may be: *allowed* says it in words, *read* returns the value or raises ValueError."""

    allowed: str
    read: Callable[[Any], Any]


def text(allowed: str = "text that is not empty") -> Rule:
    """Read any text that is not empty."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            raise ValueError
        return value.strip()

    return Rule(allowed, read)


def matching(pattern: str, allowed: str) -> Rule:
    """Read text that fits *pattern* as a whole."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError
        return value

    return Rule(allowed, read)


def server_address() -> Rule:
    """Read the address of a service: scheme, host, and a port that there can be."""
    where = re.compile(r"https?://(?:\[([^\s/?#@\[\]]+)\]|[^\s/?#@:\[\]]+)(?::(\d{1,5}))?/?")

    def read(value: Any) -> str:
        found = where.fullmatch(value) if isinstance(value, str) else None
        if found is None or not 0 < int(found[2] or 1) <= 65_535:
            raise ValueError
        if found[1] is not None:
            IPv6Address(found[1])
        return found[0]

    return Rule("an address such as https://holdfast.example.com, without a path", read)


def host() -> Rule:
    """Read where to listen: a name or an address, which may have the brackets that it has in a URL."""
    name = re.compile(r"\[([^\s/\[\]]+)\]|([^\s/\[\]]+)")

    def read(value: Any) -> str:
        found = name.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is None:
            raise ValueError
        if found[1] is not None or ":" in found[2]:
            IPv6Address(found[1] or found[2])
        return found[1] or found[2]

    return Rule("a name or an address such as 127.0.0.1 or ::1, without a port", read)


def one_of(*choices: str) -> Rule:
    """Read one of these words."""

    def read(value: Any) -> str:
        if value not in choices:
            raise ValueError
        return str(value)

    return Rule(f"one of {', '.join(choices)}", read)


def whole(least: int, most: int) -> Rule:
    """Read a whole number in a range."""

    def read(value: Any) -> int:
        number = int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value.strip()) else value
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
            raise ValueError
        return number

    return Rule(f"a whole number from {least} to {most}", read)


def switch() -> Rule:
    """Read a yes or no."""

    def read(value: Any) -> bool:
        if isinstance(value, bool):
            return value
        if not isinstance(value, str) or value.strip().lower() not in _TRUTH:
            raise ValueError
        return _TRUTH[value.strip().lower()]

    return Rule("true or false", read)


def words() -> Rule:
    """Read a list of names, in text separated by commas."""

    def read(value: Any) -> tuple[str, ...]:
        found = value.split(",") if isinstance(value, str) else value
        if not isinstance(found, (list, tuple)) or not all(isinstance(word, str) for word in found):
            raise ValueError
        names = tuple(word.strip() for word in found)
        if not all(names):
            raise ValueError
        return names

    return Rule("names separated by commas, or a list of names in the file", read)


def networks() -> Rule:
    """Read a list of addresses and networks; a name would fit no address that a connection comes from."""
    many = words()

    def read(value: Any) -> tuple[str, ...]:
        found: tuple[str, ...] = many.read(value)
        for one in found:
            ip_network(one)
        return found

    return Rule(
        "addresses or networks such as 10.0.0.2 or 10.0.0.0/8, separated by commas or in a list", read
    )


def duration(least: float) -> Rule:
    """Read a duration in seconds: a number, or a number with ms, s, m, h or d."""

    def read(value: Any) -> float:
        seconds = value
        if isinstance(value, str):
            found = _DURATION.fullmatch(value.strip())
            if found is None:
                raise ValueError
            seconds = float(found[1]) * _SECONDS[found[2] or "s"]
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise ValueError
        if not math.isfinite(seconds) or seconds < least:
            raise ValueError
        return float(seconds)

    return Rule(f"seconds, or a number with ms, s, m, h or d; at least {least:g} s", read)


def size(least: int) -> Rule:
    """Read a size in bytes: a number, or a number with B, KiB, MiB or GiB."""

    def read(value: Any) -> int:
        number = value
        if isinstance(value, str):
            found = _SIZE.fullmatch(value.strip())
            if found is None:
                raise ValueError
            number = int(found[1]) * _BYTES[found[2] or "B"]
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number < 2**63:
            raise ValueError
        return number

    return Rule(f"bytes, or a number with KiB, MiB or GiB; at least {least}", read)
