"""The branches of a run while they are in memory: they wait, fall asleep and end together."""

from __future__ import annotations

import asyncio
import time
from itertools import islice
from typing import NoReturn

from holdfast.errors import HoldfastError
from holdfast.workflow.branch import Branch, Unwinding, Wait
from holdfast.workflow.ends import Ended, Frozen, Raised
from holdfast.workflow.ledger import Ledger
from holdfast.workflow.notebook import Notebook
from holdfast.workflow.rest import SHORT, asleep, busy, circle, idle_waits, lasts

# How long the code of a run may take to unwind, in seconds.
LONGEST_UNWINDING = 5.0


class Company:
    """Keeps the branches of a replay, which ends with the *verdict* of one of them or once all of them wait.

    *closing* says that its code unwinds, *fate* is the error that keeps the run from being written.
    """

    def __init__(self, ledger: Ledger, notebook: Notebook, *, frozen: bool) -> None:
        self.ledger, self.notebook, self.frozen = ledger, notebook, frozen
        self.branches: dict[str, Branch] = {}
        self.closing = False
        self.verdict: Ended | None = None
        self.fate: HoldfastError | None = None

    async def idle(self, branch: Branch, wait: Wait) -> None:
        """Let the other branches run; where all are idle the run falls asleep."""
        if self.closing:
            # The run has ended while this branch asked the database: nobody is left to rouse it.
            raise Unwinding
        loop = asyncio.get_running_loop()
        branch.wait, branch.future = wait, loop.create_future()
        moments = [moment for moment in (wait.due, wait.look) if moment is not None]
        timer = None
        if moments and not wait.parks:
            timer = loop.call_later(max(0.0, min(moments) - time.monotonic()), self.rouse, branch)
        try:
            self.rest()
            await branch.future
        except asyncio.CancelledError:
            self.closing = self.closing or self.ledger.is_stopped()
            raise
        finally:
            if timer is not None:
                timer.cancel()
            branch.wait = branch.future = None

    def rouse(self, branch: Branch) -> None:
        """Let an idle branch go on; it counts as busy from now on."""
        if branch.future is not None and not branch.future.done():
            branch.wait = None
            branch.future.set_result(None)

    def rest(self) -> None:
        """Put the run to sleep if every branch waits, and for longer than is worth staying.

        Where all of them wait for each other it ends: nobody is left to rouse one.
        """
        if self.closing or any(busy(self.branches)):
            return
        waits = idle_waits(self.branches)
        verdict: Ended | None = asleep(waits, self.notebook.notes)
        if not waits:
            verdict = Raised(circle(self.branches))
        elif self.frozen:
            verdict = Frozen()
        if verdict is not None:
            self.verdict = verdict
            self.unwind()

    def is_last(self) -> bool:
        """True where a long wait of the current branch puts the run to sleep: no other is busy or soon is."""
        if len(list(islice(busy(self.branches), 2))) > 1:
            return False
        waits = [branch.wait for branch in self.branches.values() if branch.wait is not None]
        # Later than what is short, for time goes by until the run falls asleep.
        return lasts(waits, 2 * SHORT)

    def end(self, verdict: Ended) -> NoReturn:
        """Decide how the replay ends and unwind its code; always raises `Unwinding`."""
        if self.verdict is None:
            self.verdict = verdict
        self.unwind()
        raise Unwinding

    def give_up(self, error: HoldfastError) -> NoReturn:
        """End the attempt: the run's own code must not take this for an error of a step."""
        self.fate = self.fate or error
        self.unwind()
        raise Unwinding from error

    def unwind(self) -> None:
        """Have all code that waits come to its end; nothing can be asked any more."""
        self.closing = True
        for branch in self.branches.values():
            if branch.future is not None and not branch.future.done():
                branch.future.set_exception(Unwinding())

    async def close(self, main: Branch) -> None:
        """End all branches once the code of *main* has ended."""
        del self.branches[main.name]
        self.unwind()
        tasks = [branch.task for branch in self.branches.values() if branch.task is not None]
        for branch in self.branches.values():
            if branch.task is not None and branch.future is None:
                branch.task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=LONGEST_UNWINDING)
        at_work = [one.task for one in self.branches.values() if one.in_step and one.task is not None]
        if at_work and self.ledger.is_cancelled():
            # What was done is made up for next: a step is waited for, as one of the main branch is.
            await asyncio.wait(at_work)
