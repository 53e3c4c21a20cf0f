"""A forge of a test's own: a database, a folder, and a client that pushes to it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from examples.forge import database, git, repositories, spool
from examples.forge.forge import Forge
from examples.forge.repositories import DEFAULT_BRANCH, Repository
from examples.forge.scene import server
from examples.forge.scene.history import Growth, grow
from examples.forge.settings import Settings
from examples.forge.wiring import build
from holdfast.testing import DrainReport, SyncThrowawayDatabase

TOPIC = "refs/heads/topic"


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything that a test of the forge needs at hand."""

    forge: Forge
    db: SyncThrowawayDatabase
    server_url: str
    folder: Path

    @property
    def settings(self) -> Settings:
        """The settings of the forge."""
        return self.forge.settings

    def with_github(self, url: str) -> Bench:
        """Return the same forge with GitHub elsewhere."""
        return replace(self, forge=build(replace(self.settings, github_url=url)))

    def rows(self, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run SQL and return its rows, or none."""
        with self.forge.connect() as connection:
            cursor = connection.execute(text.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def value(self, text: str, *parameters: Any) -> Any:
        """Run SQL and return the only value of its only row."""
        [[value]] = self.rows(text, *parameters)
        return value

    def enqueue(self, kind: str, **args: Any) -> int:
        """Enqueue a job from plain SQL, which checks no arguments; answers its id."""
        queue = self.forge.app.handler(kind).policy.queue
        asked = "select holdfast.enqueue(%s, %s::jsonb, queue => %s)"
        return int(self.value(asked, kind, json.dumps(args), queue))

    def drain(self, **options: Any) -> DrainReport:
        """Run jobs until none is available."""
        return self.db.drain(self.forge.app, **options)

    def repository(self, name: str = "project") -> Repository:
        """Make an empty bare repository."""
        with self.forge.connect() as connection:
            return repositories.create(connection, self.settings, "makers", name)

    def client(self, repository: Repository) -> Path:
        """Make a clone with a first history on its default branch, which is not pushed yet."""
        clone = self.folder / "client" / repository.name
        clone.parent.mkdir(exist_ok=True)
        git.run("clone", "--quiet", "--bare", str(repository.path), str(clone), folder=self.folder)
        grow(clone, [Growth(DEFAULT_BRANCH, "first history", commits=3)])
        return clone

    def refusing(self) -> Any:
        """Let the database refuse connections inside ``with``."""
        return server.refusing(self.server_url, self.settings.database_url)

    def spooled(self) -> list[Path]:
        """Return what waits on disk."""
        return list(spool.kept(self.settings.root))


@contextmanager
def opened(server_url: str, folder: Path) -> Iterator[Bench]:
    """Open a bench in *folder* on a running server."""
    url = server.create_database(server_url)
    root = folder / "the forge"
    settings = Settings(database_url=url, root=root, retry_base=5)
    settings.save()
    with SyncThrowawayDatabase(url, schema="holdfast") as db:
        database.migrate(url)
        yield Bench(build(settings), db, server_url, folder)


def push(clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Push as a user does; answers what git said and how it ended."""
    return subprocess.run(
        ["git", "push", "origin", *words],
        cwd=clone,
        env=git.environment({"FORGE_PUSHER": "ada"}),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
