"""A problem: how an error travels over HTTP (RFC 9457)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

MEDIA_TYPE = "application/problem+json"
PREFIX = "urn:holdfast:problem:"
_PLAIN = (str, int, float, bool, type(None))
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong: *type* is for programs, *detail* for people, *facts* are what it names."""

    type: str
    title: str
    status: int
    detail: str
    facts: dict[str, Any] = {}


def problem_type(error: type[BaseException]) -> str:
    """Return the type under which an error travels: ``urn:holdfast:problem:job-not-found``."""
    return PREFIX + _WORD.sub("-", error.__name__).lower()


def facts_of(error: BaseException) -> dict[str, Any]:
    """Return what an error names, as far as it travels: plain values, and lists of them."""
    return {name: value for name, value in vars(error).items() if _travels(value)}


def facts_from(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `facts_of` has sent: whoever raises an error names several things by a tuple."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in facts.items()}


def _travels(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(isinstance(one, _PLAIN) for one in value)
    return isinstance(value, _PLAIN)
