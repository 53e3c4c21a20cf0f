"""The forge's database: its connections and its one small migration runner."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeAlias

import psycopg

Connection: TypeAlias = "psycopg.Connection[Any]"

MIGRATIONS = Path(__file__).with_name("migrations")
_FILE = re.compile(r"(\d{4})_\w+\.sql")


def connect(database_url: str, **options: Any) -> Connection:
    """Open a connection; ``with`` it commits at the end, or rolls back, and closes."""
    return psycopg.connect(database_url, application_name="forge", **options)


def migrate(database_url: str) -> list[int]:
    """Bring the forge's schema up to date; answers the numbers of the steps taken.

    Safe to run again, and by two at once: the second waits and finds nothing to do.
    """
    with connect(database_url) as connection:
        connection.execute("select pg_advisory_xact_lock(hashtext('forge migrate'))")
        connection.execute("create schema if not exists forge")
        connection.execute("create table if not exists forge.versions (version integer primary key)")
        known = {row[0] for row in connection.execute("select version from forge.versions")}
        missing = {number: file for number, file in _steps().items() if number not in known}
        for number, file in missing.items():
            connection.execute(file.read_bytes())
            connection.execute("insert into forge.versions (version) values (%s)", [number])
    return list(missing)


def _steps() -> dict[int, Path]:
    files = sorted(MIGRATIONS.glob("*.sql"))
    return {int(match[1]): file for file in files if (match := _FILE.fullmatch(file.name))}
