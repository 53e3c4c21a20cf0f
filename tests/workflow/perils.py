"""Plays runs in this process, statement by statement: at any of them it may die, or a signal may come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest

import holdfast
from holdfast.runtime.events import Events
from holdfast.store import leader, workers
from holdfast.testing import Clock, ThrowawayDatabase
from holdfast.worker.config import WorkerConfig
from holdfast.worker.worker import Worker

TTL = 10 * 365 * 24 * 3600.0
DUTY = 60.0
LONGEST, GLANCE = 30.0, 0.02
# Set in whatever a worker does; the event says that it is dead.
life: ContextVar[asyncio.Event | None] = ContextVar("life", default=None)


@dataclass
class Perils:
    """What happens at which statement of a worker, counted through all of its lives.

    *deaths* says where it dies, and whether the statement was carried out before; *signals* where a signal
    of a name comes in.
    """

    deaths: dict[int, bool]
    signals: dict[int, str]
    send: Any
    count: int = 0
    sending: list[asyncio.Task[None]] = field(default_factory=list)

    async def pass_by(self, dead: asyncio.Event, statement: Any) -> Any:
        """Carry a statement out, or not: of the dead, nothing reaches the database any more."""
        _check(dead)
        self.count += 1
        number = self.count
        if (name := self.signals.pop(number, None)) is not None:
            await self._send(name)
        after = self.deaths.pop(number, None)
        if after is not False:
            answer = await statement()
        if after is not None:
            dead.set()
        _check(dead)
        return answer

    async def _send(self, name: str) -> None:
        async def send() -> None:
            life.set(None)
            with suppress(holdfast.RunEnded):
                await self.send(name)

        sending = asyncio.create_task(send())
        self.sending.append(sending)
        # Where the statement is part of a transaction, the signal comes in after its end.
        await asyncio.wait((sending,), timeout=GLANCE)


def _check(dead: asyncio.Event) -> None:
    if dead.is_set():
        msg = "dead"
        raise ConnectionError(msg)


def beset(patch: pytest.MonkeyPatch, perils: Perils) -> None:
    """Have every statement of a worker pass by the perils."""
    for name in ("fetch", "execute"):
        patch.setattr(asyncpg.Connection, name, _passing(getattr(asyncpg.Connection, name), perils))


def _passing(method: Any, perils: Perils) -> Any:
    async def passing(connection: Any, *arguments: Any, **options: Any) -> Any:
        async def statement() -> Any:
            return await method(connection, *arguments, **options)

        dead = life.get()
        if dead is None:
            return await statement()
        try:
            return await perils.pass_by(dead, statement)
        except ConnectionError:
            # A dead process leaves no transaction open.
            connection.terminate()
            raise

    return passing


class Crew:
    """Claims and runs one job at a time, with workers that die, until nothing lives any more."""

    def __init__(self, app: holdfast.App, db: ThrowawayDatabase, client: holdfast.Client) -> None:
        self._app, self._db, self._client = app, db, client

    async def go_on(self) -> None:
        """Work until every run has ended; what still waits for a signal gets it."""
        async with asyncio.timeout(LONGEST):
            while True:
                dead = asyncio.Event()
                async with self._worker(dead) as worker:
                    while not dead.is_set():
                        next_in = await self._stage()
                        if not await self._turn(worker, dead) and not await self._move_on(next_in):
                            return

    async def _turn(self, worker: Worker, dead: asyncio.Event) -> bool:
        """Claim and serve one job, or die of it; False where there is none."""
        serving = asyncio.create_task(self._serve(worker, dead))
        dying = asyncio.create_task(dead.wait())
        await asyncio.wait((serving, dying), return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if dead.is_set():
            # The first cancel ends the handler, of which the worker then wants to tell.
            while not serving.done():
                serving.cancel()
                await asyncio.wait((serving,), timeout=0.01)
            return True
        return await serving

    async def _serve(self, worker: Worker, dead: asyncio.Event) -> bool:
        life.set(dead)
        worker.claimer.reload()
        if not await worker.claimer.intake.claim(("programs",), free=1, wanted=1):
            return False
        await worker.slots.serve()
        await worker.reporter.flush()
        return True

    async def _stage(self) -> float | None:
        """Do the leader's duties; a rescue skips what a broken connection has locked until then."""
        term = await self._db.database.run(leader.lead("crew", None, DUTY))
        assert term is not None
        await self._db.database.run(workers.declare_lost(term))
        await self._db.database.run(workers.rescue_jobs(term, 1000))
        return (await self._db.database.run(leader.stage_jobs(term, 1000))).next_in

    async def _move_on(self, next_in: float | None) -> bool:
        """Send what is waited for, or else move the clock; False where nothing lives."""
        waited = await self._db.fetch(_WAITED)
        for run_id, name in waited:
            await self._client.signal(run_id, name, name, key=name)
        if waited:
            return True
        if next_in is not None:
            await Clock(self._db).advance(next_in + 0.001)
            return True
        left = await self._db.fetch("select job_id, worker_id from holdfast.live_jobs")
        assert all(worker_id for _, worker_id in left), f"nothing wakes {left}"
        return bool(left)

    @asynccontextmanager
    async def _worker(self, dead: asyncio.Event) -> AsyncIterator[Worker]:
        """Register a worker, and leave it behind as one that has died."""
        config = WorkerConfig(
            database=self._db.config, queues=("programs",), slots=1, ttl=TTL, prefetch=0, listen=False
        )
        worker = Worker(self._app, self._db.database, config, Events())
        await worker.open()
        try:
            yield worker
        finally:
            # As a dead process would: it writes nothing more.
            dead.set()
            await _abandon(worker)
            await self._db.fetch(_EXPIRE, worker.worker_id)


async def _abandon(worker: Worker) -> None:
    for part in (worker.journal, worker.step_writer, worker.reporter, worker._executors):
        await part.stop()
    worker.lease.stop()
    logging.getLogger().removeHandler(worker._log_handler)


_EXPIRE = "update holdfast.workers set expires_at = '-infinity', ttl = '1 ms' where id = $1"
_WAITED = """
    select s.run_id, n.name from holdfast.suspensions s
    join holdfast.live_jobs l on l.job_id = s.run_id and l.state = 'waiting'
    cross join unnest(s.signals) as n (name)
"""
