"""The slots: a fixed number of coroutines that take jobs from the buffer and run them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import copy_context

from holdfast.model.outcome import Complete, Fail, Stop, Transition
from holdfast.runtime.events import Events
from holdfast.store.attempts import Fence
from holdfast.worker.buffer import Buffer, Entry
from holdfast.worker.perform import Performer
from holdfast.worker.permits import Permits
from holdfast.worker.reporter import Reporter
from holdfast.worker.running import Cause, Held, Running
from holdfast.worker.turns import Turns

# How long a stop waits for handlers that will not be cancelled, in seconds.
LONGEST_STOP = 1.0

# An attempt with its decision; None where nothing had to be written.
Served = tuple[Running, Transition | None]


class Slots:
    """Runs up to *count* attempts at once.

    *freed* is called whenever a slot has taken a job or found none, so that the claimer can look at once:
    many may come free in one turn of the loop, and each sees what the others have left.  Nothing is begun
    while *may_begin* says no, until `go_on` is called and it says yes.
    """

    def __init__(
        self,
        count: int,
        performer: Performer,
        *,
        buffer: Buffer,
        permits: Permits,
        reporter: Reporter,
        held: Held,
        events: Events,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> None:
        self.count = count
        self.busy = 0
        self.done = 0
        self.freed: Callable[[], None] = lambda: None
        self._buffer, self._performer, self._reporter = buffer, performer, reporter
        self._permits, self._held, self._events = permits, held, events
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._may_begin, self._allowed = may_begin, asyncio.Event()
        self._turns = Turns()
        # By limited queue: what says that it has room.
        self._tellers: dict[str, Callable[[], object]] = {}

    async def start(self) -> None:
        """Begin to take jobs."""
        if not self._tasks:
            self._stopping = False
            for _ in range(self.count):
                self._open()

    async def stop(self) -> None:
        """End all slots at once, waiting a second at most for handlers that will not be cancelled."""
        self._stopping = True
        for running in tuple(self._held.running.values()):
            running.interrupt(Cause.RELEASE)
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=LONGEST_STOP)
            if stuck:
                self._events.emit("slots.stuck", count=len(stuck))

    def _open(self) -> None:
        task = asyncio.create_task(self._slot(), name="holdfast slot")
        self._tasks.add(task)
        task.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._events.emit("slot.failed", error=error)
        if not self._stopping:
            # A handler cancelled its own task, which is its slot's, or left something in its context.
            self._open()

    async def _slot(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - slots are tasks
        clean = copy_context()
        # What a handler set in its context, such as a tenant, is no affair of the next job.
        while not (self._stopping or task.cancelling()) and copy_context() == clean:
            turn = self._turns.count
            # Once in a turn of the loop: only a process that was frozen has let a lease run out in between.
            if not (self._turns.has_begun or self._may_begin()):
                await self._wait_for_lease()
            running, _ = await self.serve()
            if running.leftover is not None:
                await self._sit_out(running.leftover)
            if self._turns.is_over(time.monotonic()):
                await self._turns.let_turn(has_waited=self._turns.count != turn)

    def go_on(self) -> None:
        """Have slots look again whether they may begin something."""
        self._allowed.set()

    async def _wait_for_lease(self) -> None:
        """Begin nothing on a lease that may have run out: what is in the buffer others may have by now."""
        while not self._may_begin():
            self._allowed.clear()
            await self._allowed.wait()

    async def _sit_out(self, leftover: asyncio.Future[object]) -> None:
        """Stay taken for as long as a thread works on for an attempt that has ended."""
        self.busy += 1
        try:
            await asyncio.wait({leftover})
        finally:
            self.busy -= 1

    async def serve(self) -> Served:
        """Take the best job, run its handler to the end and report what the attempt came to."""
        # Most of the time there is one, and nothing to wait for.
        entry = self._buffer.pop()
        self.freed()
        _, _, fence, heard, claimed = entry or await self._next()
        began = time.monotonic()
        if not self._turns.has_begun:
            self._turns.begin(began)
        running = Running(claimed, fence, heard, began, claimed.started)
        running.permit_recorded = self._permits.unrecorded(fence)
        queue = claimed.queue
        if queue in self._permits.limited:
            running.on_settled = self._teller(queue)
        self._held.running[fence] = running
        self.busy += 1
        self._events.emit("attempt.started", running=running)
        try:
            decision = await self._performer.perform(running)
        finally:
            self.busy -= 1
            self._held.running.pop(fence, None)
        self.done += 1
        self._events.emit("attempt.ended", running=running, decision=decision)
        heir = self._heir(running, decision) if queue in self._permits.turnover.watched else None
        frees = queue if heir is None and queue in self._permits.limited else None
        if decision is not None:
            self._reporter.report(running, decision, heir, frees=frees)
        else:
            self._held.drop([fence])
            # Its own transaction has ended it, and its limit has room.
            self._reporter.acknowledged(set() if frees is None else {frees})
        return running, decision

    async def _next(self) -> Entry:
        """Wait for a job, and have those that rest do so too: they have no work either."""
        self._turns.call_all()
        return await self._buffer.take()

    def _teller(self, queue: str) -> Callable[[], object]:
        """Return what tells of room in a limited queue, from any thread, though the slot is taken still."""
        teller = self._tellers.get(queue)
        if teller is None:
            tell = asyncio.get_running_loop().call_soon_threadsafe
            teller = self._tellers[queue] = lambda: tell(self._reporter.acknowledged, {queue})
        return teller

    def _heir(self, running: Running, decision: Transition | None) -> Fence | None:
        """Hand the permit of an attempt on, if that has ended its job and nobody works on for it."""
        is_over = isinstance(decision, Complete | Fail | Stop) and not running.is_worked_on
        queue, idle = running.claimed.queue, self.count - self.busy
        return self._permits.hand_on(running.fence, queue, idle=idle, is_over=is_over)
