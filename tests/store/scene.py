"""The store without a worker process around it: jobs, worker rows, claims, and sessions that race."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from holdfast.model.job import ClaimedJob, NewJob
from holdfast.model.outcome import Complete
from holdfast.store import attempts, jobs, leader, workers
from holdfast.store.attempts import Demand, Ended, Fence
from holdfast.store.database import Connection, run_on
from holdfast.store.sqlfile import rendered
from holdfast.store.statement import Statement
from holdfast.store.workers import NewWorker
from holdfast.testing import ThrowawayDatabase

T = TypeVar("T")
KIND = "greet"
EVERY_TABLE = """
    select relname from pg_class
    where relnamespace = to_regnamespace($1) and relkind in ('r', 'p') and not relispartition order by 1"""


def fence(job: ClaimedJob) -> Fence:
    """What every write of this attempt names."""
    return Fence(job.id, job.attempt)


class Scene:
    """What a test of the store needs at hand; jobs are of kind ``greet`` in queue ``default``."""

    def __init__(self, db: ThrowawayDatabase, stack: AsyncExitStack) -> None:
        self.db, self._stack = db, stack

    async def session(self) -> Connection:
        """A connection of its own, cut at the end of the test even while it waits for a lock."""
        connection = await self.db.database.connect()
        self._stack.callback(connection.terminate)
        return connection

    async def run(self, statement: Statement[T], connection: Connection | None = None) -> T:
        """Run a statement of the store."""
        return await self.db.database.run(statement, connection)

    async def enqueue(self, count: int = 1, **options: Any) -> list[int]:
        """Enqueue *count* equal jobs; answers their ids."""
        job = NewJob(**({"kind": KIND, "args": "{}"} | options))
        return [handle.id for handle in await self.run(jobs.enqueue_jobs([job] * count))]

    async def worker(self, *queues: str, ttl: float = 60.0) -> int:
        """Register a worker on *queues*; answers its id."""
        names = queues or ("default",)
        new = NewWorker(
            name="w",
            host="h",
            pid=1,
            version="0",
            queues=names,
            kinds=(KIND,),
            workflows=(KIND,),
            slots=10,
            ttl=ttl,
        )
        await self.run(workers.know_queues(names))
        return await self.run(workers.register_worker(new))

    async def claim(
        self,
        worker_id: int,
        *queues: str,
        limit: int = 10,
        free: int | None = None,
        kinds: Sequence[str] = (KIND,),
        hurried: bool = False,
        connection: Connection | None = None,
    ) -> list[ClaimedJob]:
        """Claim up to *limit* jobs; without *free*, all of them for free slots."""
        demand = Demand(
            worker_id=worker_id,
            queues=queues or ("default",),
            kinds=tuple(kinds),
            limit=limit,
            free=limit if free is None else free,
            hurried=hurried,
        )
        return await self.run(attempts.claim_jobs(demand), connection)

    async def claim_limited(
        self,
        worker_id: int,
        queue: str = "default",
        *,
        free: int = 10,
        wanted: int | None = None,
        more: int = 0,
        connection: Connection | None = None,
    ) -> list[ClaimedJob]:
        """Claim from a queue with limits, as a worker does: for free slots or *wanted* jobs; *more* ahead."""
        limit = free if wanted is None else wanted
        demand = Demand(
            worker_id=worker_id, queues=(queue,), kinds=(KIND,), limit=limit, free=free, more=more
        )
        return await self.run(attempts.claim_limited(demand), connection)

    async def claim_announced(
        self, worker_id: int, job_id: int, connection: Connection | None = None
    ) -> list[ClaimedJob]:
        """Claim one job by its number, as a worker at rest does."""
        return await self.run(attempts.claim_announced(worker_id, (KIND,), job_id), connection)

    async def one(self, worker_id: int | None = None, **options: Any) -> ClaimedJob:
        """Enqueue one job and claim it."""
        await self.enqueue(**options)
        holder = worker_id if worker_id is not None else await self.worker()
        return (await self.claim(holder))[0]

    async def complete(self, *claimed: ClaimedJob, connection: Connection | None = None) -> list[int]:
        """Complete attempts; answers the jobs whose lease still held."""
        ended = [Ended(fence(job), Complete(None)) for job in claimed]
        return await self.run(attempts.finish_jobs(ended), connection)

    async def lead(self) -> int:
        """Become leader; answers the term."""
        term = await self.run(leader.lead("scene", None, 600.0))
        assert term is not None
        return term

    async def lose(self, worker_id: int) -> None:
        """Let a worker's lease run out long ago, and make it known."""
        await self.db.fetch(
            "update holdfast.workers set ttl = '0', expires_at = '-infinity' where id = $1", worker_id
        )
        assert worker_id in await self.run(workers.declare_lost(await self.lead()))

    async def states(self) -> dict[int, str]:
        """Where every job stands."""
        return dict(await self.db.fetch("select id, state from holdfast.job_overview order by id"))

    async def dump(self) -> dict[str, list[str]]:
        """Every row of every table, to see whether anything was changed."""
        tables = [row[0] for row in await self.db.fetch(EVERY_TABLE, self.db.schema)]
        return {table: await self._rows(table) for table in tables}

    async def _rows(self, table: str) -> list[str]:
        text = f"select t::text from holdfast.{table} t order by 1"  # noqa: S608 - a name from the catalogue
        return [row[0] for row in await self.db.fetch(text)]

    async def execute(self, connection: Connection, text: str, *parameters: Any) -> Any:
        """Run SQL written against schema ``holdfast`` in a session; answers its first value."""
        return await connection.fetchval(rendered(text, self.db.schema), *parameters)

    async def run_on(self, connection: Connection, statement: Statement[T]) -> T:
        """Run a statement in a session, inside its transaction."""
        return await run_on(connection, statement, self.db.schema)

    async def blocked(self, connection: Connection | None = None) -> None:
        """Wait until the session, or any one in this database, waits for a lock."""
        waits = (
            "select 1 from pg_stat_activity "
            "where pid = coalesce($1, pid) and datname = current_database() and wait_event_type = 'Lock'"
        )
        pid = None if connection is None else connection.get_server_pid()
        async with asyncio.timeout(20):
            while not await self.db.value(waits, pid):  # noqa: ASYNC110 - a lock wait has no event
                await asyncio.sleep(0.005)


async def drop_partitions(db: ThrowawayDatabase) -> None:
    """Drop the daily partitions that the migration made: history lies in the default ones then."""
    made = """
        select c.relname from pg_class c
        where c.relnamespace = to_regnamespace($1) and c.relkind = 'r' and c.relname ~ '_[0-9]{8}$'
    """
    for (name,) in await db.fetch(made, db.schema):
        assert await db.value("select holdfast.drop_partition($1)", name) == "dropped"
