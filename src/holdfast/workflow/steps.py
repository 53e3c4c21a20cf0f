"""Runs a step until it has succeeded or failed for good, and records it."""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.app.answers import reason_text
from holdfast.app.handler import Executor
from holdfast.app.options import seconds_from
from holdfast.errors import DatabaseUnavailable, InputInvalid, LeaseLost, Poison
from holdfast.model.outcome import Cancel, Retry, Snooze
from holdfast.model.step import StepKind, StepNote, StepState
from holdfast.rules.backoff import choose
from holdfast.store import steps
from holdfast.workflow.blobs import keep
from holdfast.workflow.branch import Spot, Unwinding, Wait
from holdfast.workflow.calls import StepCall
from holdfast.workflow.failures import recorded, recorded_text
from holdfast.workflow.history import Entry
from holdfast.workflow.ledger import StepTimedOut
from holdfast.workflow.replay import Replay

# A step that runs this long is worth a write that shows it as running, in seconds.
WORTH_SHOWING = 1.0


async def perform(replay: Replay, call: StepCall) -> Any:
    """Return the result of a step, recorded or new; raises the error of one that failed."""
    entry = await replay.settled(StepKind.STEP, call.name, lambda spot: _Trial(replay, spot, call).run())
    if entry.state is StepState.FAILED:
        raise replay.failures.rebuilt(call.name, entry.error or "{}")
    return call.result(entry.result)


class _Trial:
    """The tries of one step."""

    def __init__(self, replay: Replay, spot: Spot, call: StepCall) -> None:
        self._replay, self._spot, self._call = replay, spot, call
        # The run's own timeout would not end it while other branches get on.
        self._longest = replay.ledger.claimed.timeout if call.timeout is None else call.timeout
        self._tries = _ended_tries(spot.entry)
        self._snoozes = _snoozes(spot.entry)
        self._began = 0.0

    async def run(self) -> None:
        """Try until it is over, one way or the other."""
        if self._replay.notebook.holds_turns:
            # The function may tell others: called again after a death, it must tell them the same.  The way
            # to it must be the same as well, for it may be shown before that is written, or be made up for.
            await self._replay.save()
            await self._replay.begin(self._spot)
        entry = self._spot.entry
        if entry is not None and entry.state is StepState.RETRYING:
            await self._rest(entry.due or 0.0)
        while True:
            self._tries += 1
            self._began = time.monotonic()
            failure = await self._once()
            if failure is None:
                return
            rest, error = self._rest_after(failure), _told(failure)
            if rest is None:
                await self._save(StepState.FAILED, error=error)
                return
            due = time.monotonic() + rest
            await self._save(StepState.RETRYING, error=error, due=due)
            await self._rest(due)

    def _rest_after(self, failure: BaseException) -> float | None:
        """Return how long to rest before the next try, in seconds; None: there is none."""
        match failure:
            case Poison() | Unkept() | Declined(answer=Cancel()):
                return None
            case Declined(answer=Snooze(), delay=delay):
                self._snoozes += 1
                return delay
        counted = self._tries - self._snoozes
        if counted >= self._call.max_attempts:
            return None
        if isinstance(failure, Declined) and failure.delay is not None:
            return failure.delay
        return choose(self._call.retry, counted, random.random).rest / timedelta(seconds=1)

    async def _rest(self, due: float) -> None:
        # A function that was stopped for a failed sibling may have made an error of its own out of that.
        await self._replay.begin(self._spot)
        if due > time.monotonic():
            reason = f"the next try of step {self._call.name!r}"
            await self._replay.wait(self._spot, Wait(reason, due=due))

    async def _once(self) -> BaseException | None:
        """Call the function once and record its result; answers what it raised."""
        showing = asyncio.get_running_loop().call_later(WORTH_SHOWING, self._show)
        branch = self._spot.branch
        branch.in_step = True
        try:
            if self._call.transaction:
                await self._in_transaction()
                return None
            value = await self._called(self._call.args)
            text = await self._text(value)
        except asyncio.CancelledError as cancelled:
            await self._cancelled()
            return cancelled
        except (Unwinding, GeneratorExit):
            raise
        except BaseException as error:
            self._heed_stop(error)
            # The door around a step: what it raises is a value.
            return error
        finally:
            branch.in_step = False
            showing.cancel()
        await self._save(StepState.COMPLETED, result=text)
        return None

    async def _cancelled(self) -> None:
        """Tell a cancel that meant the run, or this branch of it, from one of the step's own."""
        task, branch = asyncio.current_task(), self._spot.branch
        if branch.cancelled and not self._replay.closing and branch.task is task:
            await self._replay.deliver_cancel(self._spot)
        if self._replay.closing or (task is not None and task.cancelling()):
            self._replay.heed_cut(self._spot)
            self._replay.closing = True
            raise asyncio.CancelledError

    def _heed_stop(self, error: BaseException) -> None:
        """Unwind where the function has made *error* of its attempt's end: the next one calls it again."""
        replay, task = self._replay, asyncio.current_task()
        is_cut_off = task is not None and task.cancelling() and replay.ledger.is_stopped()
        if replay.closing or is_cut_off:
            replay.closing = True
            raise asyncio.CancelledError from error

    async def _called(self, args: tuple[Any, ...]) -> Any:
        """Call the function, and await on the loop what it gives to be awaited, wherever it was called."""
        call, limit = self._call, asyncio.timeout(self._longest)
        try:
            if call.executor is Executor.LOOP:
                value = call.function(*args, **call.kwargs)
            else:
                value = await self._outside(args)
            if not inspect.isawaitable(value):
                return value
            async with limit:
                return await value
        except StepTimedOut:
            raise self._late() from None
        except TimeoutError:
            if limit.expired():
                raise self._late() from None
            raise

    def _late(self) -> TimeoutError:
        return TimeoutError(f"step {self._call.name!r} took longer than {self._longest:g} s")

    async def _outside(self, args: tuple[Any, ...]) -> Any:
        call, arguments = self._call, "{}"
        if call.executor is Executor.PROCESS:
            assert call.process is not None  # noqa: S101 - made for every process
            arguments = call.process.signature.encode(args, call.kwargs)
        return await self._replay.ledger.outside(
            call.executor, lambda: call.function(*args, **call.kwargs), call.process, arguments, self._longest
        )

    async def _in_transaction(self) -> None:
        """Commit what the function writes together with its record."""
        replay = self._replay
        # What comes before the step is not to be missing where the step is recorded.
        await replay.save()
        note: StepNote | None = None
        try:
            async with replay.ledger.transaction() as connection:
                note = await self._noted(connection)
        except asyncio.CancelledError:
            if note is None or replay.ledger.is_stopped():
                raise
            replay.give_up(DatabaseUnavailable(f"the commit of step {note.name!r} was cut short"))
        except Undone as undone:
            raise undone.error from None
        except (LeaseLost, DatabaseUnavailable) as error:
            # Nobody knows whether it was committed: the next attempt finds out.
            replay.give_up(error)
        replay.history.note(note)

    async def _noted(self, connection: Any) -> StepNote:
        try:
            text = await self._text(await self._called((connection, *self._call.args)))
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            # The door around a step: its error is carried past what the end of a transaction may raise.
            raise Undone(error) from error
        ledger, note = self._replay.ledger, self._note(StepState.COMPLETED, result=text)
        saved = await ledger.run_on(connection, steps.save_steps([(ledger.fence, note)]))
        if not saved:
            raise LeaseLost(*ledger.fence)
        self._replay.notebook.paused = saved[ledger.fence.job_id]
        return note

    async def _text(self, value: Any) -> str | None:
        try:
            if isinstance(value, Retry | Snooze | Cancel):
                raise Declined(value)
            return self._call.result_text(await keep(self._replay, value) if self._call.apart else value)
        except InputInvalid as invalid:
            raise Unkept(str(invalid)) from invalid

    async def _save(self, state: StepState, **facts: Any) -> None:
        await self._replay.save(self._note(state, **facts))

    def _note(self, state: StepState, **facts: Any) -> StepNote:
        name, logged = self._call.name, self._replay.redactions
        error = facts.get("error")
        return self._spot.note(
            state,
            tries=self._tries,
            seconds=time.monotonic() - self._began,
            parameters=logged.parameters(name, self._call.args, self._call.kwargs),
            shown=logged.error(name, error) if error else logged.result(name, facts.get("result")),
            detail=f'{{"snoozes":{self._snoozes}}}' if self._snoozes else None,
            **facts,
        )

    def _show(self) -> None:
        """Show a long step as running, behind its back: what fails here is not its concern."""
        note = self._spot.note(StepState.RUNNING, tries=self._tries, seconds=time.monotonic() - self._began)
        self._replay.ledger.show(note)


def _ended_tries(entry: Entry | None) -> int:
    """Return how many tries of a step have ended; one that is shown as running was cut off."""
    if entry is None:
        return 0
    return max(0, entry.tries - 1) if entry.state is StepState.RUNNING else entry.tries


def _snoozes(entry: Entry | None) -> int:
    """Return how many of the tries of a step were snoozes, which do not count."""
    if entry is None or entry.detail is None:
        return 0
    return int(msgspec.json.decode(entry.detail)["snoozes"])


def _told(failure: BaseException) -> str:
    """Return as JSON text what a step failed for."""
    if isinstance(failure, Declined):
        return recorded_text(type(failure.answer).__name__, str(failure))
    # What cannot be kept is told as what the caller knows it by.
    known = failure.__cause__ if isinstance(failure, Unkept) else None
    return recorded(known or failure)


class Declined(Exception):
    """The function returned an *answer* in place of a result; *delay* is in seconds, None where it has none.

    Raises `InputInvalid` for an answer that makes no sense.
    """

    def __init__(self, answer: Retry | Snooze | Cancel) -> None:
        super().__init__(reason_text(answer))
        delay = None if isinstance(answer, Cancel) else answer.delay
        self.delay = None if delay is None else seconds_from(f"{type(answer).__name__}.delay", delay)
        self.answer = answer


class Undone(Exception):
    """The function failed inside its transaction, with *error*."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error


class Unkept(InputInvalid):
    """The result of a step cannot be kept; trying again would not change that."""
