"""The forge as its kinds see it: settings, the registry, and a way to enqueue inside a transaction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import holdfast
from examples.forge.database import Connection, connect
from examples.forge.settings import Settings


@dataclass(frozen=True, slots=True)
class Forge:
    """What every kind is given when it is registered."""

    settings: Settings
    app: holdfast.App
    client: holdfast.SyncClient

    @property
    def retry(self) -> holdfast.Exponential:
        """The pauses after errors: they double from the settings' base to an hour."""
        return holdfast.Exponential(base=timedelta(seconds=self.settings.retry_base))

    def connect(self) -> Connection:
        """Open a connection; ``with`` it commits at the end, or rolls back, and closes."""
        return connect(self.settings.database_url)

    def enqueue(self, connection: Connection, kind: str, **args: Any) -> int:
        """Enqueue a job in the caller's transaction, by its kind's name; answers the job's id."""
        return self.client.enqueue(self.app.request(kind, args), connection=connection).id
