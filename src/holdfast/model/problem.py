"""A problem: how an error travels over HTTP (RFC 9457)."""

from __future__ import annotations

import re
from typing import Any

import msgspec

MEDIA_TYPE = "application/problem+json"
_PREFIX = "urn:holdfast:problem:"
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
    return _PREFIX + _WORD.sub("-", error.__name__).lower()
