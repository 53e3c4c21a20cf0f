"""Reads `store/sql/*.sql` and puts the configured schema in place."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from holdfast.errors import SettingInvalid

DEFAULT_SCHEMA = "holdfast"

_PART = re.compile(r"^-- part: (\w+)\n(.*?)^-- end of part\n", re.MULTILINE | re.DOTALL)
_PUT_IN = re.compile(r"^-- put in: (\w+)\n", re.MULTILINE)
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_SAID_ABOVE = re.compile(r"\A(?:--[^\n]*\n)+")
_QUALIFIER = re.compile(r"\bholdfast(?=\.)")
_CHANNEL = re.compile(r"'holdfast'")
_PARAMETER = re.compile(r"\$(\d+)")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")


@cache
def blocks(noun: str) -> dict[str, str]:
    """Return the named blocks of ``sql/<noun>.sql`` in order.

    What stands from ``-- part: <word>`` to ``-- end of part`` is also put in at ``-- put in: <word>``.
    """
    text = resources.files("holdfast.store").joinpath("sql", f"{noun}.sql").read_text("utf-8")
    shared = dict(_PART.findall(text))
    whole = _PUT_IN.sub(lambda found: shared[found[1]], _PART.sub(r"\2", text))
    parts = _NAME.split(whole)
    return {name: body.strip().rstrip(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def checked_schema(schema: str) -> str:
    """Return *schema* if it may name a schema: lower case, digits and underscores, at most 63."""
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_") or schema == "information_schema":
        msg = f"schema {schema!r} is not allowed: use at most 63 lower-case letters, digits and _, not pg_..."
        raise SettingInvalid(msg)
    return schema


@cache
def rendered(text: str, schema: str) -> str:
    """Return *text* with schema and notification channel put in place.

    What is said above a statement stays here: pg_stat_activity shows only the first kilobyte of a query.
    """
    text = _SAID_ABOVE.sub("", text)
    return _CHANNEL.sub(f"'{schema}'", _QUALIFIER.sub(f'"{schema}"', text))


@cache
def pyformat(text: str) -> str:
    """Return *text* with ``$n`` turned into ``%(pn)s``, for DB-API cursors."""
    return _PARAMETER.sub(r"%(p\1)s", text.replace("%", "%%"))
