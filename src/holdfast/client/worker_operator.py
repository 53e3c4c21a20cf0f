"""What an operator sees of workers and asks of them."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import WorkerEnded, WorkerNotFound
from holdfast.model.audit import Mandate
from holdfast.model.worker import WorkerRecord
from holdfast.store import audit, runners, workers
from holdfast.store.database import Database

MOST_LISTED = 1000


class WorkerOperator:
    """Lists workers and drains them."""

    def __init__(self, database: Database, actor: str) -> None:
        self._database, self._actor = database, actor

    async def find(self, *, ended: bool = False) -> Sequence[WorkerRecord]:
        """Return the workers that are online or draining, newest first; with *ended* the former ones too."""
        return await self._database.run(workers.list_workers(all_states=ended, limit=MOST_LISTED))

    async def resume(self, worker_id: int, reason: str | None = None) -> None:
        """Let a drained runner take jobs again; raises `WorkerNotFound` where there is no such runner."""
        async with self._database.transaction() as connection:
            if not await self._database.run(runners.resume_runner(worker_id), connection):
                raise WorkerNotFound(worker_id)
            mandate = Mandate(self._actor, reason)
            detail = {"after": {"state": "online"}}
            note = audit.write_audit(mandate, "worker.resume", f"worker {worker_id}", detail)
            await self._database.run(note, connection)

    async def drain(self, worker_id: int, reason: str | None = None) -> None:
        """Ask a worker to take nothing more, to finish what it runs and to leave.

        Raises `WorkerNotFound`, and `WorkerEnded` for one that is gone.
        """
        async with self._database.transaction() as connection:
            before = await self._database.run(workers.worker_state(worker_id), connection)
            if before is None:
                raise WorkerNotFound(worker_id)
            if not await self._database.run(workers.drain_worker(worker_id), connection):
                raise WorkerEnded(worker_id, before)
            note = audit.write_audit(
                Mandate(self._actor, reason),
                "worker.drain",
                f"worker {worker_id}",
                {"before": {"state": before}, "after": {"state": "draining"}},
            )
            await self._database.run(note, connection)
