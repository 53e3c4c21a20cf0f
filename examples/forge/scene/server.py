"""The forge's database on a server: made for the demo, and made to refuse connections for a while."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from psycopg.sql import SQL, Identifier

from examples.forge.database import connect


def create_database(server_url: str) -> str:
    """Make an empty database on a server; answers its address."""
    name = f"forge_{secrets.token_hex(4)}"
    with connect(server_url, autocommit=True) as connection:
        connection.execute(SQL("create database {}").format(Identifier(name)))
    return urlsplit(server_url)._replace(path=f"/{name}").geturl()


@contextmanager
def refusing(server_url: str, database_url: str) -> Iterator[None]:
    """Let a database refuse every new connection meanwhile; those that are open stay open."""
    name = Identifier(urlsplit(database_url).path.lstrip("/"))
    with connect(server_url, autocommit=True) as connection:
        connection.execute(SQL("alter database {} with allow_connections false").format(name))
        try:
            yield
        finally:
            connection.execute(SQL("alter database {} with allow_connections true").format(name))
