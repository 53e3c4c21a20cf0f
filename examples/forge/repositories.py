"""Bare repositories: on disk and as rows."""

from __future__ import annotations

import os
import re
import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from examples.forge import git
from examples.forge.database import Connection
from examples.forge.settings import Settings

DEFAULT_BRANCH = "refs/heads/main"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_SOURCES = Path(__file__).parents[2]


class NameRefused(Exception):
    """A name that may not become a folder."""


class NameTaken(Exception):
    """Another repository has that owner and name."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository: its row's id and where it lies on disk."""

    id: int
    owner: str
    name: str
    path: Path


def place(root: Path, owner: str, name: str) -> Path:
    """Return where a repository lies; raises `NameRefused` for what could lead elsewhere."""
    for part in (owner, name):
        if not _NAME.fullmatch(part) or part.endswith((".git", ".spool", ".lock")):
            msg = f"{part!r} cannot name a repository: use letters, digits, '_', '.' and '-'"
            raise NameRefused(msg)
    return root / owner / f"{name}.git"


def register(connection: Connection, root: Path, owner: str, name: str) -> Repository:
    """Make the row of a new repository; raises `NameTaken` and `NameRefused`.

    Until the transaction ends nobody else can take the name, so its folder is the caller's to fill.
    """
    path = place(root, owner, name)
    row = connection.execute(
        "insert into forge.repositories (owner, name) values (%s, %s) "
        "on conflict (owner, name) do nothing returning id",
        [owner, name],
    ).fetchone()
    if row is None:
        msg = f"there is a repository {owner}/{name} already"
        raise NameTaken(msg)
    return Repository(row[0], owner, name, path)


def find(connection: Connection, root: Path, repository_id: int) -> Repository | None:
    """Return a repository, or None if it has vanished."""
    row = connection.execute(
        "select owner, name from forge.repositories where id = %s", [repository_id]
    ).fetchone()
    return None if row is None else Repository(repository_id, row[0], row[1], place(root, row[0], row[1]))


def create(connection: Connection, settings: Settings, owner: str, name: str) -> Repository:
    """Make an empty bare repository, ready for pushes once the transaction commits."""
    repository = register(connection, settings.root, owner, name)
    repository.path.parent.mkdir(parents=True, exist_ok=True)
    git.run("init", "--quiet", "--bare", str(repository.path), folder=settings.root)
    git.run("symbolic-ref", "HEAD", DEFAULT_BRANCH, folder=repository.path)
    furnish(repository, settings)
    return repository


def furnish(repository: Repository, settings: Settings) -> None:
    """Give a bare repository its configuration and its hook."""
    # Reflogs tell what happened to a ref, whatever the database says.  Housekeeping is not the pusher's to
    # wait for.
    for name, value in (("core.logAllRefUpdates", "always"), ("receive.autogc", "false"), ("gc.auto", "0")):
        git.run("config", name, value, folder=repository.path)
    hook = repository.path / "hooks" / "post-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(_launcher(repository, settings), "utf-8")
    hook.chmod(0o755)


def _launcher(repository: Repository, settings: Settings) -> str:
    # A shell script, because a path with a space, or a long one, does not fit into a first line with "#!".
    # -P keeps the repository's own folders, where git starts the hook, from being taken for modules.
    python, sources, file = (
        shlex.quote(str(p)) for p in (sys.executable, _SOURCES, settings.file.absolute())
    )
    command = f"PYTHONPATH={sources} exec {python} -P -m examples.forge.hook {file} {repository.id}"
    return f"#!/bin/sh\n# Written by the forge. It hands the push in; it can never refuse it.\n{command}\n"


def count_push(connection: Connection, repository_id: int) -> None:
    """Count one more push; the row stays locked until the transaction ends."""
    connection.execute(
        "update forge.repositories set push_count = push_count + 1 where id = %s", [repository_id]
    )


def note_head(connection: Connection, repository_id: int, path: Path) -> None:
    """Note where the default branch points now.

    The row is locked before git is asked, so of two that come at once the later one looks later, and wins.
    """
    connection.execute("select from forge.repositories where id = %s for update", [repository_id])
    connection.execute(
        "update forge.repositories set head_sha = %s where id = %s", [head(path), repository_id]
    )


def note_size(connection: Connection, repository_id: int, size: int) -> None:
    """Note how many bytes the repository holds."""
    connection.execute(
        "update forge.repositories set size_bytes = %s, measured_at = now() where id = %s",
        [size, repository_id],
    )


def head(path: Path) -> str | None:
    """Return where the default branch points, or None where it does not exist."""
    return git.run("for-each-ref", "--format=%(objectname)", DEFAULT_BRANCH, folder=path).strip() or None


def bytes_on_disk(folder: Path) -> int:
    """Return how many bytes the files of a repository hold; files that vanish meanwhile count as none."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total
