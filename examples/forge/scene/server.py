"""The demo's PostgreSQL: embedded, with a database for the forge that can refuse connections for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from examples.forge.database import connect

NAME = "forge"


def create_database(server_url: str, name: str = NAME) -> str:
    """Make an empty database on a server; answers its address."""
    with connect(server_url, autocommit=True) as connection:
        connection.execute(f'create database "{name}"'.encode())
    return urlsplit(server_url)._replace(path=f"/{name}").geturl()


@contextmanager
def refusing(server_url: str, name: str = NAME) -> Iterator[None]:
    """Let the database refuse every new connection meanwhile; those that are open stay open."""
    with connect(server_url, autocommit=True) as connection:
        connection.execute(f'alter database "{name}" with allow_connections false'.encode())
        try:
            yield
        finally:
            connection.execute(f'alter database "{name}" with allow_connections true'.encode())
