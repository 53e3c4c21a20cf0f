"""``trending:compute``: which repositories are busy; a recurring job that adds one ranking at every tick."""

from __future__ import annotations

from datetime import timedelta

import holdfast
from examples.forge.forge import Forge

_COMPUTE = """
insert into forge.trending_snapshots (ranking)
select coalesce(jsonb_agg(jsonb_build_object('repository', r.owner || '/' || r.name, 'pushes', busy.pushes)
                          order by busy.pushes desc, r.id), '[]')
from (select repository_id, count(distinct push_id) as pushes from forge.push_events
      where pushed_at > now() - interval '24 hours'
      group by repository_id order by 2 desc limit 10) busy
join forge.repositories r on r.id = busy.repository_id
returning ranking->0->>'repository'
"""


def register(forge: Forge) -> None:
    """Register the kind and its schedule."""

    @forge.app.job(kind="trending:compute", queue="chores", retry=forge.retry)
    async def compute_trending(job: holdfast.Job) -> None:
        # An async handler: the connection is asyncpg's, and the ranking commits with the job's completion.
        async with job.transaction() as connection:
            job.result = await connection.fetchval(_COMPUTE)

    every = timedelta(seconds=forge.settings.trending_every)
    forge.app.schedule("trending", compute_trending.job(), every=every, missed="once", overlap="skip")
