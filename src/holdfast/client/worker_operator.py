"""What an operator sees of workers and asks of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.client.answer import there
from holdfast.client.wire.workers import WorkerStory
from holdfast.errors import OptionInvalid, WorkerEnded, WorkerNotFound
from holdfast.model.audit import Mandate
from holdfast.model.job import JobState
from holdfast.model.selection import JobFilter
from holdfast.model.worker import WorkerRecord
from holdfast.store import audit, overview, runners, workers
from holdfast.store.database import Connection, Database

MOST_LISTED = 1000
MOST_ACTS = 50


class WorkerOperator:
    """Lists workers and drains them."""

    def __init__(self, database: Database, actor: str) -> None:
        self._database, self._actor = database, actor

    async def find(self, *, ended: bool = False) -> Sequence[WorkerRecord]:
        """Return the workers that are online or draining, newest first; with *ended* the former ones too."""
        return await self._database.run(workers.list_workers(all_states=ended, limit=MOST_LISTED))

    async def show(self, worker_id: int) -> WorkerStory:
        """Return a worker with what it holds and what operators did to it; raises `WorkerNotFound`."""
        found = await self._database.run(workers.list_workers(all_states=True, limit=1, worker_id=worker_id))
        if not found:
            raise WorkerNotFound(worker_id)
        chosen = JobFilter(states=(JobState.CLAIMED, JobState.RUNNING), worker_id=worker_id)
        async with self._database.transaction() as connection:
            await self._database.run(overview.plan_freely(overview.LISTING_TIMEOUT), connection)
            held = overview.list_jobs(chosen, before=None, limit=MOST_LISTED)
            done = audit.list_audit(subject=f"worker {worker_id}", actor=None, before=None, limit=MOST_ACTS)
            return WorkerStory(
                found[0],
                await self._database.run(held, connection),
                await self._database.run(done, connection),
            )

    async def resume(self, worker_id: int, reason: str | None = None) -> None:
        """Let a drained runner take jobs again.

        Raises `WorkerNotFound`, and `OptionInvalid` for a process: once drained, it leaves.
        """
        async with self._database.transaction() as connection:
            change = await self._database.run(runners.resume_runner(worker_id), connection)
            if change is None:
                state = await self._database.run(workers.worker_state(worker_id), connection)
                there(state, WorkerNotFound(worker_id))
                remedy = "only runners are resumed: a process that is drained leaves, start another one"
                raise OptionInvalid("worker", worker_id, remedy)
            await self._note(connection, "worker.resume", worker_id, reason, change)

    async def drain(self, worker_id: int, reason: str | None = None) -> None:
        """Ask a worker to take nothing more and to leave when what it runs has ended; a runner stays.

        Raises `WorkerNotFound`, and `WorkerEnded` for one that is gone.
        """
        async with self._database.transaction() as connection:
            before = await self._database.run(workers.worker_state(worker_id), connection)
            if before is None:
                raise WorkerNotFound(worker_id)
            change = await self._database.run(workers.drain_worker(worker_id), connection)
            if change is None:
                raise WorkerEnded(worker_id, before)
            await self._note(connection, "worker.drain", worker_id, reason, change)

    async def _note(
        self, connection: Connection, action: str, worker_id: int, reason: str | None, change: str
    ) -> None:
        mandate, detail = Mandate(self._actor, reason), msgspec.json.decode(change)
        await self._database.run(
            audit.write_audit(mandate, action, f"worker {worker_id}", detail), connection
        )
