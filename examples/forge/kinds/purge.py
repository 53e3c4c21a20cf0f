"""``jobs:purge_completed``: deletes what completed jobs left behind; always safe to run again.

Holdfast prunes its own rows.  The push events, activities and rankings of the past are the forge's.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import holdfast
from examples.forge.database import connect
from examples.forge.forge import Forge

BATCH = 1000
# An event that was never processed is kept, however old it is.
_OLD: Final = {
    "activities": "delete from forge.activities where id in (select id from forge.activities "
    "where made_at < now() - %(age)s order by id limit %(batch)s)",
    "push events": "delete from forge.push_events where id in (select id from forge.push_events "
    "where processed_at < now() - %(age)s order by id limit %(batch)s)",
    "rankings": "delete from forge.trending_snapshots where id in (select id from forge.trending_snapshots "
    "where computed_at < now() - %(age)s order by id limit %(batch)s)",
}


def register(forge: Forge) -> None:
    """Register the kind and its nightly schedule."""

    @forge.app.job(kind="jobs:purge_completed", queue="chores", priority=8, retry=forge.retry, timeout=3600)
    def purge(job: holdfast.Job, days: int = 14) -> dict[str, int]:
        age = timedelta(days=max(1, days))
        return {what: _purge(job, forge, statement, age) for what, statement in _OLD.items()}

    forge.app.schedule("purge by night", purge.job(), cron="15 5 * * *", overlap="skip")


def _purge(job: holdfast.Job, forge: Forge, statement: str, age: timedelta) -> int:
    """Delete in batches, each in a transaction of its own, so that nobody waits long for a lock."""
    purged = 0
    with connect(forge.settings.database_url, autocommit=True) as connection:
        while True:
            job.check()
            deleted = connection.execute(statement.encode(), {"age": age, "batch": BATCH}).rowcount
            purged += deleted
            if deleted < BATCH:
                return purged
