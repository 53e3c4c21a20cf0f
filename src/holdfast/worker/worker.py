"""The worker: puts its parts together, and starts, drains and stops them."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress

from holdfast import __version__
from holdfast.app.registry import App
from holdfast.errors import HoldfastError
from holdfast.model.worker import WorkerState
from holdfast.runtime.events import Events
from holdfast.store import workers
from holdfast.store.database import Database
from holdfast.store.workers import NewWorker
from holdfast.worker.attention import Attention
from holdfast.worker.buffer import Buffer
from holdfast.worker.bundles import Bundles
from holdfast.worker.claimer import Claimer
from holdfast.worker.config import WorkerConfig
from holdfast.worker.executors import Executors
from holdfast.worker.journal import Journal, JournalHandler
from holdfast.worker.lease import Lease, now
from holdfast.worker.lifespan import Lifespan
from holdfast.worker.perform import Performer
from holdfast.worker.permits import Permits
from holdfast.worker.reporter import Reporter
from holdfast.worker.run_reader import RunReader
from holdfast.worker.running import Cause, Held
from holdfast.worker.slots import Slots
from holdfast.worker.step_writer import StepWriter

# How long a stop waits for ends that came after all, in seconds.
LAST_WORDS = 5.0


class Worker:
    """One process worker.

    ``start`` registers it and begins to claim; ``stop`` hands back what cannot finish within the grace.
    The database must be open and is not closed here.
    """

    def __init__(self, app: App, database: Database, config: WorkerConfig, events: Events) -> None:
        self.config, self.events, self.held = config, events, Held()
        self._queues = frozenset(config.queues)
        self._app, self._database = app, database
        self._buffer, self.bundles = Buffer(), Bundles(database)
        self.permits = Permits(self._buffer, config.prefetch)
        self.journal = Journal(database, self.held, events, self.bundles)
        self.reporter = Reporter(
            database, self.held, self.permits, events, before_flush=self.journal.settle, bundles=self.bundles
        )
        self.step_writer = StepWriter(database, self.held, events)
        self._executors = Executors(
            database, self.journal, self.step_writer, RunReader(database), self.bundles, config.slots
        )
        performer = Performer(app, self._executors)
        self.slots = Slots(
            config.slots,
            performer,
            buffer=self._buffer,
            permits=self.permits,
            reporter=self.reporter,
            held=self.held,
            events=events,
            may_begin=lambda: self.lease.holds,
        )
        self.attention = Attention(database, self.held, self.bundles, self._buffer, self.reporter, events)
        self.claimer = Claimer(
            database,
            config,
            slots=self.slots,
            buffer=self._buffer,
            permits=self.permits,
            reporter=self.reporter,
            held=self.held,
            bundles=self.bundles,
            events=events,
            kept=self.attention.claimed,
        )
        # Claims fill slots, and their ends call for claims: here the circle is closed.
        self.slots.freed, self.reporter.acknowledged = self.claimer.freed, self.claimer.reported
        self.lease = Lease(
            config.database, events, ttl=config.ttl, every=config.renew_every, patience=self._patience
        )
        self._lifespan = Lifespan(app.lifespans)
        self._log_handler = JournalHandler(self.journal)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.worker_id, self._heard_at = 0, 0.0
        self._grace: asyncio.Timeout | None = None
        self._hurried = False
        self.on_drain: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Register and begin to claim."""
        await self.open()
        if unused := self._queues.difference(self._app.queues()):
            self.events.emit("queues.unused", queues=", ".join(sorted(unused)))
        for service in (self.attention, self.slots, self.claimer):
            await service.start()

    async def open(self) -> None:
        """Register and be ready for handlers, but leave the claiming to the caller; end it with `stop`."""
        self._loop = asyncio.get_running_loop()
        await self._lifespan.start()
        logging.getLogger().addHandler(self._log_handler)
        logging.getLogger("holdfast.job").setLevel(logging.INFO)
        await self._register()
        await self.journal.start()

    async def stop(self, grace: float | None = None) -> bool:
        """Take nothing new, wait up to *grace* seconds, hand the rest back; True if all jobs finished.

        What brings jobs stops before them, they before those who write for them, and these before the lease,
        without which nothing is written.  What handlers use is there until the last of them has ended.
        """
        finished = await self._drain(self.config.grace if grace is None else grace)
        # Before the rest is handed back, or a claim that is under way would bring more.
        await self.claimer.stop()
        await self._release()
        # The slots end what did not let itself be handed back; until then it may log.
        for service in (self.attention, self.slots, self.journal):
            await service.stop()
        await self._stop_writing()
        await self._executors.stop()
        # Before the goodbye: a renewal after it would be told that this worker is lost.
        self.lease.stop()
        logging.getLogger().removeHandler(self._log_handler)
        if self.worker_id:
            # A worker that cannot say goodbye is declared lost when its lease runs out.
            with suppress(HoldfastError):
                await self._database.run(workers.end_worker(self.worker_id, self.claimer.intake.proven))
            self.events.emit("worker.stopped", worker_id=self.worker_id, finished=finished)
        await self._lifespan.stop()
        return finished

    async def _stop_writing(self) -> None:
        # Only now: the last ends have made room under limits as well.
        with suppress(HoldfastError):
            await self.claimer.openings.tell()
        # What could not be handed back in time may have ended at last: while the lease holds, it counts.
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                await self.reporter.flush()
        await self.step_writer.stop()
        await self.reporter.stop()

    def hurry(self) -> None:
        """End the grace of a stop now, or give none to the stop that comes."""
        self._hurried = True
        if self._grace is not None:
            self._grace.reschedule(asyncio.get_running_loop().time())

    @property
    def lives(self) -> bool:
        """False when only a restart helps: the loop stands still for longer than any job may take."""
        return not self.worker_id or self.lease.is_watched

    @property
    def ready(self) -> bool:
        """True while this worker takes jobs and its lease is young."""
        return bool(self.worker_id) and not self.claimer.draining and self.lease.holds

    def notified(self, topic: str, rest: str) -> None:
        """React to a notification; see `store.listen`."""
        match topic:
            case "jobs":
                self._call(rest)
            case "job":
                number, _, rest = rest.partition(":")
                self._call(rest, int(number))
            case "queues":
                self.claimer.reload()
                self.attention.wake()
            case "reconnected":
                self.claimer.reconnected()
                self.attention.wake()
            case "cancel" if rest == str(self.worker_id):
                self.attention.wake()
            case "drain" if rest == str(self.worker_id):
                self.drain()

    def _call(self, rest: str, job_id: int | None = None) -> None:
        best, _, names = rest.partition(":")
        queues = None if names == "*" else self._queues.intersection(names.split(","))
        if queues is None or queues:
            self.claimer.call(int(best), queues, job_id)

    async def _register(self) -> None:
        host = socket.gethostname()
        name = self.config.name or f"{host}:{os.getpid()}:{secrets.token_hex(3)}"
        new = NewWorker(
            name=name,
            host=host,
            pid=os.getpid(),
            version=__version__,
            queues=self.config.queues,
            kinds=tuple(self._app.handlers),
            slots=self.config.slots,
            ttl=self.config.ttl,
            labels=self.config.labels,
            workflows=self._app.workflows(),
            makes_up=True,
        )
        await self._database.run(workers.know_queues(self.config.queues))
        self.worker_id = await self._database.run(workers.register_worker(new))
        self._heard_at = now()
        self.lease.start(self.worker_id, self._renewed)
        self.slots.go_on()
        self.bundles.begin(new.kinds, new.workflows)
        self.claimer.begin(self.worker_id, new.kinds)
        self.events.emit("worker.registered", worker_id=self.worker_id, name=name)

    def _patience(self) -> float:
        """Return how long the loop may stand still: as long as its longest job may take, and a ttl."""
        timeouts = [running.claimed.timeout for running in tuple(self.held.running.values())]
        return max(timeouts, default=0.0) + self.config.ttl

    def _renewed(self, state: WorkerState | None) -> None:
        """Called from the lease's thread after every renewal."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._after_renewal, state)

    def _after_renewal(self, state: WorkerState | None) -> None:
        self.events.emit("lease.renewed", worker_id=self.worker_id, state=state)
        if state is WorkerState.DRAINING:
            self.drain()
        if state is None and self.worker_id:
            self._lose()
        self.slots.go_on()
        self.attention.wake()
        renewed_at, self._heard_at = self._heard_at, now()
        if self._heard_at - renewed_at > self.config.ttl:
            # Its lease had run out, so it found nothing for as long, whatever there was.
            self.claimer.wake()

    def _lose(self) -> None:
        """Stop every stale handler, forget everything and begin anew as another worker."""
        self.events.emit("lease.lost", worker_id=self.worker_id, held=len(self.held.fences))
        self.worker_id = self.claimer.intake.worker_id = 0
        self.lease.stop()
        self._buffer.give_up()
        for running in tuple(self.held.running.values()):
            running.interrupt(Cause.LOST)
        lost = list(self.held.fences)
        self.held.drop(lost)
        self.permits.forget(lost)
        self.bundles.forget()
        if not self.claimer.draining:
            self.attention.revive = self._register
            self.attention.wake()

    def drain(self) -> None:
        """Take nothing new and finish what has begun; says so once."""
        if not self.claimer.draining:
            self.claimer.drain()
            if self.worker_id:
                self.events.emit("worker.draining", worker_id=self.worker_id)
            self.on_drain()

    async def _drain(self, grace: float) -> bool:
        self.events.emit("worker.stopping", worker_id=self.worker_id, grace=grace)
        self.claimer.drain("the worker is stopping")
        try:
            async with asyncio.timeout(0.0 if self._hurried else grace) as self._grace:
                await self.held.wait_empty()
        except TimeoutError:
            return False
        finally:
            self._grace = None
        return True

    async def _release(self) -> None:
        for running in tuple(self.held.running.values()):
            running.interrupt(Cause.RELEASE)
        # Without a database nothing can be given back: a rescue does it later.
        with suppress(HoldfastError):
            if self.worker_id:
                # The server may go on with a claim that was cut off here.
                await self._database.run(workers.close_worker(self.worker_id))
                await self.claimer.intake.strays.release(self.worker_id)
        try:
            async with asyncio.timeout(max(5.0, self.config.renew_every)):
                await self.held.wait_empty()
        except TimeoutError:
            self.events.emit("worker.left_behind", worker_id=self.worker_id, held=len(self.held.fences))
