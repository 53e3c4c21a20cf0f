"""``repo:size_recalc``: how much a repository holds on disk; the last one to look wins."""

from __future__ import annotations

import holdfast
from examples.forge import repositories
from examples.forge.database import Connection
from examples.forge.forge import Forge

KIND = "repo:size_recalc"


def register(forge: Forge) -> None:
    """Register the kind."""

    @forge.app.job(kind=KIND, queue="sizes", priority=7, retry=forge.retry)
    def recalculate_size(repository_id: int) -> int:
        with forge.connect() as connection:
            repository = repositories.find(connection, forge.settings.root, repository_id)
            if repository is None:
                msg = f"repository {repository_id} has vanished"
                raise holdfast.Poison(msg)
            size = repositories.bytes_on_disk(repository.path)
            repositories.note_size(connection, repository_id, size)
        return size


def enqueue(forge: Forge, connection: Connection, repository_id: int) -> None:
    """Ask for a fresh look, in the caller's transaction.

    The looks at one repository come one after the other, for an old look must not overwrite a newer one.
    """
    request = forge.app.request(KIND, {"repository_id": repository_id})
    forge.client.enqueue(request, connection=connection, concurrency_key=f"size of {repository_id}")
