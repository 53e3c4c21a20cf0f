"""Named branches of a run that go on at once, each with its own memory."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from holdfast.app.options import checked_text
from holdfast.errors import CutShort, InputInvalid, OptionInvalid
from holdfast.model.step import StepKind
from holdfast.workflow.branch import Branch, Spot, Unwinding, Wait, current_branch
from holdfast.workflow.replay import Replay

R = TypeVar("R")


class BranchHandle(Generic[R]):
    """A started branch: ``.result()`` after the block, or ``await`` it inside."""

    def __init__(self, branches: Branches, branch: Branch) -> None:
        self._branches, self.branch = branches, branch
        self.is_done = False
        self.value: R | None = None
        self.error: BaseException | None = None

    @property
    def name(self) -> str:
        """The full name of the branch, such as ``main/pack``."""
        return self.branch.name

    def result(self) -> R:
        """Return what the branch returned; raises what it raised, and `InputInvalid` while it goes on."""
        if not self.is_done:
            msg = (
                f"branch {self.name!r} goes on: await it, or ask after the `async with run.branches()` block"
            )
            raise InputInvalid(msg)
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]

    def __await__(self) -> Generator[Any, None, R]:
        return self._branches.joined(self).__await__()


class Branches:
    """``async with run.branches() as branches``: starts branches and waits for all of them at the end.

    As in a TaskGroup, the failure of one stops its siblings, and all failures are raised as an
    ExceptionGroup, in the order in which the branches were started.  A sibling is stopped at its next step,
    which is recorded.  Other than in a TaskGroup the body of the block is not stopped: it is told at its end,
    or where it awaits a branch that was stopped, so let a branch do what may take long.
    """

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._parent = parent = replay.branch("branches")
        parent.blocks += 1
        self._name = f"the end of block {parent.blocks} of branches in {parent.name!r}"
        self._handles: list[BranchHandle[Any]] = []
        self._joining: set[Branch] = set()
        self._failed = self._is_over = False

    async def __aenter__(self) -> Self:
        return self

    def start(self, name: str, code: Coroutine[Any, Any, R]) -> BranchHandle[R]:
        """Begin a branch; its name is part of what is remembered.

        Raises `OptionInvalid`, and `InputInvalid` for what is no coroutine, comes after the block or from
        another branch than that of the block.
        """
        self._check(name, code)
        branch = Branch(self._parent.child_name(name), self._parent)
        handle: BranchHandle[R] = BranchHandle(self, branch)
        self._handles.append(handle)
        self._replay.branches[branch.name] = branch
        branch.cancelled = self._failed
        branch.task = asyncio.create_task(self._run(handle, code), name=f"holdfast branch {branch.name}")
        # One that is stopped before it has begun would complain that nobody awaited it.
        branch.task.add_done_callback(lambda _: code.close())
        return handle

    def _check(self, name: str, code: Any) -> None:
        if not asyncio.iscoroutine(code):
            msg = f"branch {name!r} was given {code!r}: call the async function, such as pack(run, order_id)"
            raise InputInvalid(msg)
        try:
            checked_text("name", name, most=100)
            if "/" in name or "#" in name:
                raise OptionInvalid("name", name, "leave out / and #, which join the names of branches")
            if self._is_over:
                msg = f"branch {name!r} was started after its `async with run.branches()` block had ended"
                raise InputInvalid(msg)
            starter = self._replay.branch("the start of a branch")
            if starter is not self._parent:
                # Its name is counted there, and of two that start nobody could tell which was the first.
                msg = (
                    f"branch {name!r} was started by branch {starter.name!r} in a block of "
                    f"{self._parent.name!r}: open a block of its own there, `async with run.branches()`"
                )
                raise InputInvalid(msg)
        except (InputInvalid, Unwinding):
            code.close()
            raise

    async def _run(self, handle: BranchHandle[R], code: Coroutine[Any, Any, R]) -> None:
        current_branch.set(handle.branch)
        try:
            handle.value = await code
        except (Unwinding, asyncio.CancelledError) as stopped:
            handle.error = stopped
        except GeneratorExit:
            raise
        except BaseException as error:
            # The door around a branch: its error is told to its parent, and not to the worker's loop.
            handle.error = error
        finally:
            handle.is_done = True
            self._left(handle)

    def _left(self, handle: BranchHandle[Any]) -> None:
        self._replay.branches.pop(handle.name, None)
        if self._replay.closing:
            return
        if _failure(handle) is not None:
            self._stop_all()
        for joining in self._joining:
            self._replay.rouse(joining)
        self._replay.rest()

    async def joined(self, handle: BranchHandle[R]) -> R:
        """Wait for one branch; raises `StepsAtOnce` in a task of its own, such as those of gather."""
        branch = self._replay.branch("the end of a branch")
        if f"{branch.name}/".startswith(f"{handle.name}/"):
            msg = f"branch {branch.name!r} waits for the end of {handle.name!r}, which comes after its own"
            raise InputInvalid(msg)
        await self._join(f"the end of branch {handle.name!r}", [handle])
        if branch is self._parent:
            self._hear_from([handle])
        return handle.result()

    async def _join(self, name: str, handles: Sequence[BranchHandle[Any]]) -> None:
        """Wait until these branches have ended; any branch may, and not only that which has started them.

        That a timeout or a failed sibling ends the wait takes a place, which is named after the join: other
        joins before it took none.  A replay is told of it also where the branches have ended meanwhile.
        """
        branch = self._replay.branch("the end of a branch")
        place, met = self._replay.ahead(branch)
        if met is not None and (met.kind, met.name) == (StepKind.CANCEL, name):
            self._replay.enter(StepKind.CANCEL, name)
        spot = Spot(branch, place, StepKind.CANCEL, name, None)
        # The parent stops its own branches instead, and is told by their end.  Nobody is told at a join
        # behind which the record goes on.
        is_told = branch is not self._parent and not self._replay.goes_on(branch, place)
        wait = self._replay.wait if is_told else self._replay.stand
        self._joining.add(branch)
        try:
            while any(not handle.is_done for handle in handles):
                if self._parent.cancelled and not self._failed:
                    self._stop_all()
                await wait(spot, Wait(name, joins=True))
        except (CutShort, asyncio.CancelledError):
            branch.place = place + 1
            raise
        finally:
            self._joining.discard(branch)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        if error is not None and (self._replay.closing or isinstance(error, (Unwinding, GeneratorExit))):
            return
        if error is not None:
            self._stop_all()
        while True:
            try:
                await self._join(self._name, self._handles)
                break
            except CutShort as cut:
                error = error or cut
                self._stop_all()
        self._tell(error)

    def _errors(self) -> list[BaseException]:
        return [error for handle in self._handles if (error := _failure(handle)) is not None]

    def _stop_all(self) -> None:
        """Stop every branch that goes on: at its wait, in its step, or where it next asks for something."""
        self._failed = True
        for handle in self._handles:
            branch = handle.branch
            if handle.is_done or branch.cancelled or branch.told:
                continue
            branch.cancelled = True
            if branch.in_step and branch.task is not None:
                branch.task.cancel()
            elif branch.wait is not None:
                self._replay.rouse(branch)

    def _tell(self, error: BaseException | None) -> None:
        failures = self._errors()
        if isinstance(error, CutShort) and not failures:
            raise error
        if not (error is None or isinstance(error, asyncio.CancelledError) or _is_among(error, failures)):
            failures.insert(0, error)
        if failures:
            # An ExceptionGroup, as long as none of them is a SystemExit or the like.
            raise BaseExceptionGroup("branches of a run failed", failures)
        self._hear_from(self._handles)
        if error is None and any(isinstance(one.error, asyncio.CancelledError) for one in self._handles):
            raise asyncio.CancelledError

    def _hear_from(self, handles: Sequence[BranchHandle[Any]]) -> None:
        """Where none has failed, they were stopped for a sibling of their parent: by that it is told so."""
        stopped = any(one.branch.told and isinstance(one.error, asyncio.CancelledError) for one in handles)
        if stopped and not self._errors():
            self._parent.hear()


def _failure(handle: BranchHandle[Any]) -> BaseException | None:
    """Return the error of a branch that has failed; one that was stopped has none of its own."""
    return None if isinstance(handle.error, (Unwinding, asyncio.CancelledError)) else handle.error


def _is_among(error: BaseException, failures: Sequence[BaseException]) -> bool:
    return any(error is known for known in failures)
