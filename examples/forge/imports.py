"""Imports of organisations: their rows, and the clone that becomes one of our repositories."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from examples.forge import git
from examples.forge.database import Connection
from examples.forge.repositories import Repository

CLONE_TIMEOUT = 120.0


@dataclass(frozen=True, slots=True)
class Import:
    """An organisation to be imported."""

    id: int
    organisation: str
    status: str


@dataclass(frozen=True, slots=True)
class ImportedRepository:
    """One repository of an import."""

    id: int
    organisation: str
    name: str
    status: str


def add(connection: Connection, organisation: str) -> int:
    """Make the row of an import; answers its id."""
    [row] = connection.execute(
        "insert into forge.imports (organisation) values (%s) returning id", [organisation]
    ).fetchall()
    return int(row[0])


def find(connection: Connection, import_id: int) -> Import | None:
    """Return an import, or None if it has vanished."""
    row = connection.execute(
        "select id, organisation, status from forge.imports where id = %s", [import_id]
    ).fetchone()
    return None if row is None else Import(*row)


def add_found(connection: Connection, import_id: int, names: Iterable[str]) -> None:
    """Note repositories that a listing named; those that are known already stay as they are."""
    connection.execute(
        "insert into forge.import_repositories (import_id, name) select %s, unnest(%s::text[]) "
        "on conflict (import_id, name) do nothing",
        [import_id, list(names)],
    )


def settle(connection: Connection, import_id: int, status: str, problem: str | None = None) -> bool:
    """End the discovery of an import; False if it has ended before."""
    settled = connection.execute(
        "update forge.imports set status = %s, problem = %s where id = %s and status = 'requested' "
        "returning id",
        [status, problem, import_id],
    )
    return settled.fetchone() is not None


def found(connection: Connection, import_id: int) -> list[int]:
    """Return the ids of the repositories that wait for their import."""
    rows = connection.execute(
        "select id from forge.import_repositories where import_id = %s and status = 'found' order by id",
        [import_id],
    )
    return [row[0] for row in rows]


def find_repository(connection: Connection, imported_id: int) -> ImportedRepository | None:
    """Return one repository of an import, locked until the transaction ends, or None if it has vanished."""
    row = connection.execute(
        "select r.id, i.organisation, r.name, r.status from forge.import_repositories r "
        "join forge.imports i on i.id = r.import_id where r.id = %s for update of r",
        [imported_id],
    ).fetchone()
    return None if row is None else ImportedRepository(*row)


def settle_repository(
    connection: Connection,
    imported_id: int,
    status: str,
    *,
    problem: str | None = None,
    repository: Repository | None = None,
) -> None:
    """Note what became of one repository of an import."""
    connection.execute(
        "update forge.import_repositories set status = %s, problem = %s, repository_id = %s where id = %s",
        [status, problem, None if repository is None else repository.id, imported_id],
    )


def clone(url: str, target: Path) -> None:
    """Clone a remote repository to *target*, in the place of whatever an earlier attempt left there."""
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    # The address comes from outside: no transport that runs commands or reads our disk.
    arguments = ("clone", "--quiet", "--bare", "--", url, str(target))
    git.run(
        *arguments, folder=target.parent, timeout=CLONE_TIMEOUT, extra={"GIT_ALLOW_PROTOCOL": "http:https"}
    )


def move_in(clone_folder: Path, repository: Repository) -> None:
    """Make a finished clone the repository's folder, inside the transaction that makes its row.

    A folder that lies there already belongs to an attempt whose transaction did not commit.
    """
    shutil.rmtree(repository.path, ignore_errors=True)
    repository.path.parent.mkdir(parents=True, exist_ok=True)
    clone_folder.rename(repository.path)


def clear_away(clone_folder: Path) -> None:
    """Remove what is left of a clone that did not become a repository."""
    shutil.rmtree(clone_folder, ignore_errors=True)
