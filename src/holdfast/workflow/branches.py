"""Named branches of a run that go on at once, each with its own memory."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from holdfast.app.options import checked_text
from holdfast.errors import CutShort, InputInvalid, OptionInvalid
from holdfast.model.step import StepKind
from holdfast.workflow.branch import Branch, Unwinding, Wait, current_branch
from holdfast.workflow.replay import Replay

R = TypeVar("R")
JOIN = "`async with run.branches()`"


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
    which is recorded.
    """

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._parent = replay.branch("branches")
        self._handles: list[BranchHandle[Any]] = []
        self._failed = self._is_over = False

    async def __aenter__(self) -> Self:
        return self

    def start(self, name: str, code: Coroutine[Any, Any, R]) -> BranchHandle[R]:
        """Begin a branch; its name is part of what is remembered.

        Raises `OptionInvalid`, and `InputInvalid` for what is no coroutine or comes after the block.
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
        except InputInvalid:
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
            self._left(handle.branch)

    def _left(self, branch: Branch) -> None:
        self._replay.branches.pop(branch.name, None)
        if self._replay.closing:
            return
        parent = self._parent
        if parent.wait is not None and parent.wait.joins:
            self._replay.rouse(parent)
        self._replay.rest()

    async def joined(self, handle: BranchHandle[R]) -> R:
        """Wait for one branch."""
        while not handle.is_done:
            await self._join()
        return handle.result()

    async def _join(self) -> None:
        """Wait until one branch has ended, or a timeout around them all is over, which takes a place."""
        parent = self._parent
        met = self._replay.history.at(parent.name, parent.place)
        if met is not None and (met.kind, met.name) == (StepKind.CANCEL, JOIN):
            parent.place += 1
            met.visited = True
            raise CutShort(JOIN)
        try:
            await self._replay.idle(parent, Wait("its branches", joins=True))
        except asyncio.CancelledError:
            parent.place += 1
            self._replay.heed_cut(parent, parent.place - 1, JOIN)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        if error is not None and (self._replay.closing or isinstance(error, (Unwinding, GeneratorExit))):
            return
        if error is not None:
            self._stop_all()
        while any(not handle.is_done for handle in self._handles):
            if not self._failed and (self._errors() or self._parent.cancelled):
                self._stop_all()
            try:
                await self._join()
            except CutShort as cut:
                error = error or cut
                self._stop_all()
        self._tell(error)

    def _errors(self) -> list[BaseException]:
        errors = [handle.error for handle in self._handles if handle.error is not None]
        return [error for error in errors if not isinstance(error, (Unwinding, asyncio.CancelledError))]

    def _stop_all(self) -> None:
        """Stop every branch that goes on: at its wait, in its step, or where it next asks for something."""
        self._failed = True
        for handle in self._handles:
            branch = handle.branch
            if handle.is_done:
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
        if error is None and any(isinstance(one.error, asyncio.CancelledError) for one in self._handles):
            raise asyncio.CancelledError


def _is_among(error: BaseException, failures: Sequence[BaseException]) -> bool:
    return any(error is known for known in failures)
