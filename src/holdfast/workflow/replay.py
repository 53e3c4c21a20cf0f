"""One pass through the code of a run, from its start: what is recorded is answered, the rest is done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from holdfast.app.workflow import unversioned
from holdfast.errors import CutShort, HoldfastError, InputInvalid, LeaseLost, NonDeterministicRun, StepsAtOnce
from holdfast.model.outcome import Suspend
from holdfast.model.step import StepKind, StepNote, StepState
from holdfast.store.signals import Taken, Waiter
from holdfast.store.statement import Statement
from holdfast.workflow.branch import Branch, Spot, Unwinding, Wait, current_branch
from holdfast.workflow.calls import StepCall
from holdfast.workflow.company import Company
from holdfast.workflow.cuts import is_cut, unhurt
from holdfast.workflow.ends import Ended, Raised, Returned
from holdfast.workflow.failures import Failures, recorded
from holdfast.workflow.history import Entry, History
from holdfast.workflow.ledger import Ledger
from holdfast.workflow.notebook import Notebook
from holdfast.workflow.redaction import Redactions

T = TypeVar("T")

# What is there is a job: which version of its workflow a new one would get, nobody asks of it.
OF_JOBS = frozenset({StepKind.CHILD, StepKind.CHILDREN, StepKind.ENQUEUE})

TOO_LATE = (
    "nothing can be asked of a run inside of a timeout that is over: "
    "catch the TimeoutError outside of the `async with asyncio.timeout(...)` block"
)


@dataclass(frozen=True, slots=True)
class Customs:
    """What an application says about all of its runs: which errors it knows, and what is not to be logged."""

    failures: Failures
    redactions: Redactions


class Replay(Company):
    """Plays the code of a run, with all its branches, until it ends or everything in it waits.

    A *frozen* replay does nothing new: it ends where the record does.  One that *stops* does nothing new once
    its cancel was requested.
    """

    def __init__(
        self, ledger: Ledger, history: History, customs: Customs, *, frozen: bool = False, stops: bool = True
    ) -> None:
        super().__init__(ledger, Notebook(ledger, paused=history.paused), frozen=frozen)
        self.history, self.stops = history, stops
        self.failures, self.redactions = customs.failures, customs.redactions
        self.makeups: list[StepCall] = []
        self._over = False

    async def play(self, code: Coroutine[Any, Any, Any], name: str) -> Ended:
        """Run *code* as branch *name*; raises `LeaseLost` and what else keeps a run from being written."""
        main = Branch(name)
        main.task = asyncio.current_task()
        self.branches[main.name] = main
        token = current_branch.set(main)
        ended: Ended | None = None
        try:
            ended = Returned(await code)
        except Unwinding:
            pass
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            # The door around a workflow: its error is its outcome, and not that of its worker.
            ended = Raised(error)
        finally:
            self.closing = True
            current_branch.reset(token)
            await self.close(main)
            self._over = True
        if self.fate is not None:
            raise self.fate
        if main.cut and is_cut():
            # Whoever cut the code short has not taken it back: it was no timeout inside of it.
            raise asyncio.CancelledError
        if self.verdict is not None:
            return self.verdict
        if ended is None:
            # The code has caught what was to stop it, and then asked for more.
            raise asyncio.CancelledError
        return ended

    # --- places

    def enter(self, kind: StepKind, name: str) -> Spot:
        """Take the next place of the current branch; raises what is recorded there about a cancel."""
        branch = self.branch(name)
        branch.place, entry = self.ahead(branch)
        spot = Spot(branch, branch.place, kind, name, entry)
        if entry is not None:
            entry.visited = True
            if entry.kind is not StepKind.CANCEL and not _fits(entry, kind, name):
                self.park(branch.name, branch.place, recorded=str(entry), asked=f"{kind} {name!r}")
        branch.place += 1
        if entry is not None and entry.kind is StepKind.CANCEL:
            if entry.error is not None:
                raise self.failures.rebuilt(name, entry.error)
            branch.hear()
            raise asyncio.CancelledError
        return spot

    def ahead(self, branch: Branch) -> tuple[int, Entry | None]:
        """Return the next place of a branch, behind the marks of patches, and what is recorded there."""
        place = branch.place
        while (entry := self.history.at(branch.name, place)) and entry.kind is StepKind.PATCH:
            place += 1
        return place, entry

    def goes_on(self, branch: Branch, place: int) -> bool:
        """True where the record knows of something at this place of a branch, behind it or below."""
        return self.history.goes_on(branch.name, place) or not all(
            branch.has_begun(child) for child in self.history.below(branch.name)
        )

    def branch(self, name: str) -> Branch:
        """Return the branch whose code asks for *name*; unwinds where nothing may be asked any more.

        A branch is one task: of two, nobody could tell at a replay which was the first.
        """
        if self.closing and not self._over:
            raise Unwinding
        branch = current_branch.get(None)
        if self._over or branch is None or self.branches.get(branch.name) is not branch:
            msg = "a Run can be used only by the code of its own workflow, while that runs"
            raise InputInvalid(msg)
        if branch.busy or asyncio.current_task() is not branch.task:
            raise StepsAtOnce(branch.name, name)
        return branch

    @contextmanager
    def occupied(self, spot: Spot) -> Iterator[None]:
        """Keep others from using the branch meanwhile."""
        spot.branch.busy = True
        try:
            yield
        finally:
            spot.branch.busy = False

    async def settled(self, kind: StepKind, name: str, ask: Callable[[Spot], Awaitable[None]]) -> Entry:
        """Return what is recorded at the next place, after *ask* has seen to it where nothing final was."""
        spot = self.enter(kind, name)
        if not spot.is_final:
            with self.occupied(spot):
                await self.begin(spot)
                await ask(spot)
        entry = self.history.at(spot.branch.name, spot.place)
        assert entry is not None  # noqa: S101 - recorded before, or just now
        return entry

    async def begin(self, spot: Spot) -> None:
        """Wait until something new may be done: not while the record is frozen or the run paused."""
        if self.frozen:
            await self.wait(spot, Wait("the end of the record", parks=True))
        if self.stops and self.ledger.is_cancelled():
            # What was told to stop has finished all the same: the record says so, and nothing follows it.
            self.closing = True
            raise asyncio.CancelledError
        await self.deliver_cancel(spot)
        self.heed_cut(spot)
        if self.notebook.paused:
            await self.wait(spot, Wait("a resume", parks=True))

    async def deliver_cancel(self, spot: Spot) -> None:
        """Tell a branch at this place that a sibling has failed, and record that it was told so."""
        if spot.branch.cancelled:
            spot.branch.hear()
            await self.save(spot.stopped())
            raise asyncio.CancelledError

    def heed_cut(self, spot: Spot) -> None:
        """Raise `CutShort` where something in the code itself stops it, and remember that at this place."""
        branch = spot.branch
        if self.closing or self.ledger.is_stopped():
            return
        if not is_cut():
            branch.cut = False
            return
        if branch.cut:
            self.end(Raised(InputInvalid(TOO_LATE)))
        branch.cut, error = True, CutShort(spot.told)
        self.remember(spot.stopped(error=recorded(error)))
        raise error

    def park(self, branch: str, place: int, *, recorded: str, asked: str) -> NoReturn:
        """Keep the run as it is, asleep until somebody resumes it; always raises `Unwinding`."""
        self.end(self.kept(branch, place, recorded=recorded, asked=asked))

    def kept(self, branch: str, place: int, *, recorded: str, asked: str) -> Suspend:
        """Return the decision that keeps a run whose code does not fit its record."""
        error = NonDeterministicRun(
            self.ledger.fence.job_id, branch=branch, place=place, recorded=recorded, asked=asked
        )
        return Suspend(reason=f"NonDeterministicRun: {error}", paused=True)

    # --- waiting

    async def wait(self, spot: Spot, wait: Wait) -> None:
        """Do nothing until what is waited for may have come, or a sibling has failed: then it is told so."""
        # A sibling may have failed while this branch asked the database, when nobody could rouse it.
        await self.deliver_cancel(spot)
        # Nor while it was being cut short: what it asked was answered first.
        self.heed_cut(spot)
        await self.stand(spot, wait)
        await self.deliver_cancel(spot)

    async def stand(self, spot: Spot, wait: Wait) -> None:
        """Do nothing until somebody rouses the branch, or the code itself cuts that short."""
        try:
            await self.idle(spot.branch, wait)
        except asyncio.CancelledError:
            self.heed_cut(spot)
            raise

    # --- writing

    def remember(self, note: StepNote) -> None:
        """Write a place together with whatever is written next."""
        if not self.frozen:
            self.history.note(note)
            self.notebook.notes.append(note)

    def patched(self, name: str) -> bool:
        """Return whether the current branch takes the new way; what was recorded before took the old one."""
        branch = self.branch(name)
        place = branch.place
        # In front of it there may be marks of patches that the code asks for no longer.
        while (entry := self.history.at(branch.name, place)) and entry.kind is StepKind.PATCH:
            place += 1
            if entry.name == name:
                branch.place = place
                return True
        if self.goes_on(branch, branch.place):
            return False
        self.remember(Spot(branch, branch.place, StepKind.PATCH, name, None).note(StepState.COMPLETED))
        branch.place += 1
        return True

    async def save(self, *notes: StepNote) -> None:
        """Write places, with all that the branch was to remember and enqueue; unwinds where that is refused.

        What another branch has yet to write goes with its own next step: written apart, it could come later.
        """
        for note in notes:
            self.history.note(note)
        try:
            await self.notebook.write(notes, own=current_branch.get().name, living=self.branches)
        except HoldfastError as error:
            self.give_up(error)

    async def ask(self, statement: Statement[T | None]) -> T:
        """Run a fenced statement that answers nothing where the lease is lost."""
        return await self._answered(lambda: self.ledger.ask(statement))

    async def take_signal(self, spot: Spot) -> Taken:
        """Give a place the oldest signal of its name."""
        waiter = Waiter(self.ledger.fence, spot.branch.name, spot.place, spot.name)
        return await self._answered(lambda: self.ledger.take_signal(waiter))

    async def _answered(self, question: Callable[[], Awaitable[T | None]]) -> T:
        if not self.notebook.is_blank:
            await self.save()
        try:
            answer = await unhurt(self.ledger, question())
            if answer is None:
                raise LeaseLost(*self.ledger.fence)
        except HoldfastError as error:
            self.give_up(error)
        return answer


def _fits(entry: Entry, kind: StepKind, name: str) -> bool:
    """Read whether a place is what the code asks for."""
    if entry.kind is not kind:
        return False
    return entry.name == name or (kind in OF_JOBS and unversioned(entry.name) == unversioned(name))
