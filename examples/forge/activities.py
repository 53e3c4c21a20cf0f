"""The feed of what happened in the repositories: one line for each processed push event."""

from __future__ import annotations

from dataclasses import dataclass

import holdfast
from examples.forge.database import Connection
from examples.forge.pushes import PushEvent


@dataclass(frozen=True, slots=True)
class Change:
    """What a push did to its ref (created, updated, forced, deleted) and how many commits came with it."""

    what: str
    commits: int


def add(connection: Connection, event: PushEvent, change: Change, job: holdfast.Job) -> None:
    """Add the line of a push event, in the transaction that marks it as processed."""
    connection.execute(
        "insert into forge.activities"
        " (event_id, repository_id, pusher, ref, change, commits, job_id, attempt) "
        "values (%s, %s, %s, %s, %s, %s, %s, %s)",
        [
            event.id,
            event.repository_id,
            event.pusher,
            event.ref,
            change.what,
            change.commits,
            job.id,
            job.attempt,
        ],
    )
