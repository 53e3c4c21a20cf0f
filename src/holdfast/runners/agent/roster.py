"""Everything that this runner holds: what runs, and what has ended unheard."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterable, Mapping

from holdfast.runners.agent.bench import Bench
from holdfast.runners.agent.execution import Execution
from holdfast.runners.agent.messages import Assignment, Fence, Held, Hold, Outcome, Report
from holdfast.runners.agent.reconcile import reconcile
from holdfast.runners.agent.reporter import Reporter
from holdfast.runners.agent.stages import ENDED, Cause
from holdfast.runners.agent.state import StateFolder

# So many ended assignments are remembered.
REMEMBERED = 1000


class Roster:
    """Begins, stops and reports assignments.

    An assignment is held until the server has heard of its end, also through a restart of the runner.
    *numbers* counts the requests of this term.
    """

    def __init__(self, bench: Bench, state: StateFolder) -> None:
        self.bench = bench
        self.numbers = itertools.count(1)
        bench.number = self.numbers.__next__
        self.executions: dict[Fence, Execution] = {}
        self.reporter = Reporter(bench, state)
        bench.keep = self.reporter.save
        self.begun = 0
        # Answers that are late may still offer what has ended.
        self._done: deque[Fence] = deque(maxlen=REMEMBERED)
        self._tasks: dict[Fence, asyncio.Task[None]] = {}
        self._former: asyncio.Task[None] | None = None
        self._empty, self._busy = asyncio.Event(), asyncio.Event()
        self._empty.set()

    def held(self) -> list[Held]:
        """Return what a sync lists."""
        running = [one.held() for one in self.executions.values() if one.report is None and one.is_wanted]
        return running + self.reporter.held()

    def untold(self, said: Iterable[Held]) -> None:
        """Take back what a sync said that may have reached nobody."""
        for one in said:
            execution = self.executions.get(Fence(one.job, one.attempt))
            if execution is not None:
                execution.untold(one)

    @property
    def busy(self) -> int:
        """How many slots are taken."""
        return len(self.executions)

    @property
    def is_working(self) -> bool:
        """True while a program runs or its output is on its way."""
        return any(execution.state != ENDED for execution in self.executions.values())

    def apply(self, hold: list[Hold], told: Mapping[Fence, str], free: int) -> None:
        """Do what the answer to a sync that *told* these states asks for."""
        held = {*self.executions, *self.reporter.unheard}
        orders = reconcile(hold, told=told, held=held, done=frozenset(self._done), free=free)
        for assignment in orders.begin:
            self._begin(assignment)
        for fence, order in orders.cancel:
            if fence in self.executions:
                self.executions[fence].cancel(order)
        for fence in orders.stop:
            self._stop(fence, heard=told[fence] == ENDED)

    def resume(self) -> None:
        """Begin to tell what this runner's last process could not."""
        self._former = asyncio.create_task(self.reporter.tell_former(), name="holdfast former ends")

    def interrupt(self, cause: Cause, grace: float | None = None) -> None:
        """End everything that runs."""
        for execution in tuple(self.executions.values()):
            execution.interrupt(cause, grace)

    def lose(self) -> None:
        """End what another runner may have got meanwhile: this one was out of contact for too long."""
        for execution in tuple(self.executions.values()):
            if execution.assignment.on_loss == "retry" and execution.report is None:
                execution.lose(self.bench.intervals.loss_grace)

    async def wait_empty(self) -> None:
        """Wait until nothing runs and every end was heard."""
        await self._empty.wait()

    def lose_all(self) -> None:
        """End everything: somebody else is this runner now."""
        self.interrupt(Cause.LOST)

    async def wait_busy(self) -> None:
        """Wait until something runs."""
        await self._busy.wait()

    async def stop(self) -> None:
        """Give up on everything that is left; reports wait on disk for the next start."""
        tasks = [*self._tasks.values(), *([] if self._former is None else [self._former])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, assignment: Assignment) -> None:
        execution = Execution(assignment, self.bench)
        self.executions[execution.fence] = execution
        self._empty.clear()
        self._busy.set()
        self.begun += 1
        task = asyncio.create_task(self._live(execution), name=f"holdfast assignment {execution.fence}")
        self._tasks[execution.fence] = task
        self.bench.changed()

    def _stop(self, fence: Fence, *, heard: bool) -> None:
        """Stop what the server does not want held, and forget an end that it has heard."""
        execution = self.executions.get(fence)
        if heard:
            self._heard(fence)
        elif execution is not None and execution.report is None:
            # Else its end is being told: refused, it is kept as evidence.
            self.bench.events.emit("assignment.lost", fence=fence)
            # Listed again, it would be refused again, at once, until its program has ended.
            execution.is_wanted = False
            execution.interrupt(Cause.LOST)

    def _heard(self, fence: Fence) -> None:
        self.reporter.heard(fence)
        task = self._tasks.get(fence)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def _live(self, execution: Execution) -> None:
        fence = execution.fence
        try:
            await self._perform(execution)
            if execution.report is not None:
                self.reporter.keep(fence, execution.report)
                self.bench.changed()
                await self.reporter.tell(fence)
            # One that was lost meanwhile is nobody's any more.
            self._heard(fence)
        finally:
            self._done.append(fence)
            self.executions.pop(fence, None)
            self._tasks.pop(fence, None)
            if not self.executions:
                self._empty.set()
                self._busy.clear()
            self.bench.changed()

    async def _perform(self, execution: Execution) -> None:
        try:
            await execution.run()
        except Exception as error:
            # The door around an assignment: what breaks here is told, and the runner goes on.
            self.bench.events.emit("assignment.broken", fence=execution.fence, error=error)
            execution.state = ENDED
            reason = f"the runner failed: {type(error).__name__}: {error}"
            execution.report = Report(outcome=Outcome.FAILED, reason=reason, error=reason)
