"""One attempt of a run: what it remembers is loaded, its code is replayed, and what came of it is decided."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from holdfast.app.answers import reason_text
from holdfast.app.workflow import Workflow
from holdfast.errors import InputInvalid, LeaseLost
from holdfast.model.outcome import Cancel, Fail, Retry, Snooze, Stop, Suspend
from holdfast.model.step import COMPENSATION, END_PLACE, MAIN, SEED_PLACE, StepKind, StepNote, StepState
from holdfast.rules.outcome import exhausted, poisoned, storable
from holdfast.rules.seeds import first_seed, next_seed
from holdfast.rules.telling import one_line, told
from holdfast.store import attempts, runs
from holdfast.workflow.calls import StepCall
from holdfast.workflow.ends import Continued, Ended, Raised, Returned
from holdfast.workflow.history import History
from holdfast.workflow.ledger import Ledger
from holdfast.workflow.moments import Moments
from holdfast.workflow.replay import Customs, Replay
from holdfast.workflow.run import Run
from holdfast.workflow.steps import perform

FORKED = '"forked_from"'


class Execution:
    """Runs the code of a workflow for one attempt.

    ``perform`` answers what the code returned, or the decision that ends the attempt; where that is because
    the code has raised, *error* is what.
    """

    def __init__(
        self, ledger: Ledger, workflow: Workflow[Any, Any], arguments: dict[str, Any], customs: Customs
    ) -> None:
        self._ledger, self._workflow, self._arguments = ledger, workflow, arguments
        self._customs = customs
        claimed = ledger.claimed
        self._history = History(first_seed(claimed.id, claimed.enqueued_at))
        self._moments = Moments(claimed.claimed_at, ledger.heard)
        self._is_making_up = False
        self.error: BaseException | None = None

    async def perform(self) -> Any:
        """Go on with the run as far as it goes."""
        claimed, replay = self._ledger.claimed, self._replay()
        ended: Ended | None = None
        try:
            # A first attempt remembers nothing, so nothing is loaded for it.
            if claimed.attempt > 1 or FORKED in claimed.meta:
                await self._load()
                replay = self._replay()
            if not (self._history.cancelled or self._is_exhausted()):
                ended = await replay.play(self._code(replay), MAIN)
        except asyncio.CancelledError:
            if not self._took_back_cancel():
                raise
        if ended is None and (self._ledger.is_cancelled() or self._history.cancelled):
            return await self._cancelled(replay)
        try:
            return await (self._last_act() if ended is None else self._after(replay, ended))
        except asyncio.CancelledError:
            # While the end is written, a cancel is made up for; while a failure is, it changes nothing.
            if self._is_making_up or not self._took_back_cancel():
                raise
        return await self._cancelled(replay)

    def _took_back_cancel(self) -> bool:
        """Take back what stopped this task where that was the cancel of the run, which is seen to here."""
        task = asyncio.current_task()
        if task is None or not self._ledger.is_cancelled():
            return False
        task.uncancel()
        return True

    async def _cancelled(self, replay: Replay) -> Fail | Stop | Suspend:
        """Make up for what the run did; what was under way when it was stopped, only the record knows."""
        self._ledger.heed_cancel()
        if not self._history.cancelled:
            await replay.notebook.write()
            await self._load()
        recorded = self._history.end
        then = Stop("cancel requested") if recorded is None else _end(recorded)
        return await self._make_up(then, cancelled=True)

    async def _after(self, replay: Replay, ended: Ended) -> Any:
        if isinstance(ended, (Returned, Raised)) and (left := self._history.unvisited()) is not None:
            branch, place, entry = left
            asked = "nothing more"
            if isinstance(ended, Raised):
                asked = f"nothing: it raises {storable(one_line(ended.error))}"
            return replay.kept(branch, place, recorded=str(entry), asked=asked)
        match ended:
            case Returned(value):
                return await self._returned(replay, value)
            case Raised(error):
                self.error = error
                failure = Fail(error=storable(told(error)), reason=storable(one_line(error)))
                return await self._fail(replay, failure)
            case Continued(args):
                return await self._continue(replay, args)
            case Suspend():
                # A suspension carries no errors, such as that of a timeout which the code has caught.
                if replay.notebook.posts or any(note.error is not None for note in replay.notebook.notes):
                    await replay.notebook.write()
                    ended = replace(ended, notes=tuple(n for n in ended.notes if n.due is not None))
                if replay.makeups and not (ended.notes or self._history.below("")):
                    # A cancel ends at once what sleeps without a record: nothing would be made up for.
                    ended = replace(ended, notes=(_seed_note(self._history.seed),))
                return ended
        raise AssertionError(ended)

    async def _returned(self, replay: Replay, value: Any) -> Any:
        match value:
            case Snooze() | Retry():
                await replay.notebook.write()
                return value
            case Cancel():
                return await self._fail(replay, _stop(value))
        if (replay.notebook.posts or replay.makeups) and (refusal := self._refusal(value)) is not None:
            return await self._fail(replay, refusal)
        if replay.notebook.posts:
            await replay.notebook.finish(value)
        return value

    def _refusal(self, value: Any) -> Fail | None:
        """Return why a result cannot be kept; trying again would not change that."""
        try:
            self._ledger.completion(value)
        except InputInvalid as invalid:
            return poisoned(str(invalid), str(invalid))
        return None

    async def _fail(self, replay: Replay, then: Fail | Stop) -> Fail | Stop | Suspend:
        # What was enqueued on the way goes with this end as with any other, and a later attempt that makes up
        # for things has to come by the same places.
        await replay.notebook.write()
        return await self._make_up(then, cancelled=False)

    async def _continue(self, replay: Replay, args: str) -> None:
        if replay.notebook.posts:
            await replay.notebook.write()
        await self._ledger.settle()
        seed = next_seed(self._history.seed)
        if not await self._ledger.ask(runs.continue_run(self._ledger.fence, args, seed)):
            raise LeaseLost(*self._ledger.fence)
        self._ledger.settled()

    # --- making up

    def _is_exhausted(self) -> bool:
        """True where this attempt is only to make up for things: the end is known, or none is left."""
        claimed = self._ledger.claimed
        return self._history.end is not None or claimed.failures >= claimed.max_attempts

    async def _last_act(self) -> Fail | Stop | Suspend:
        claimed, recorded = self._ledger.claimed, self._history.end
        if recorded is not None:
            return await self._make_up(_end(recorded), cancelled=False)
        reason, error = await self._ledger.ask(attempts.last_failure(claimed.id))
        then = exhausted(reason, error, failures=claimed.failures, max_attempts=claimed.max_attempts)
        return await self._make_up(then, cancelled=False)

    async def _make_up(self, then: Fail | Stop, *, cancelled: bool) -> Fail | Stop | Suspend:
        """Run what was registered with `Run.on_failure`, the last one first, before the run ends.

        What there is to make up for is read from the record alone, so that a later attempt finds the same.
        """
        self._history.forget_visits()
        frozen = self._replay(frozen=True)
        replayed = await frozen.play(self._code(frozen), MAIN)
        if isinstance(replayed, Suspend):
            return replace(replayed, stopping=cancelled)
        if not frozen.makeups:
            return then
        # Whatever the run ends for, nobody is to stop this for a cancel any more.
        self._ledger.heed_cancel()
        self._is_making_up = True
        await self._ledger.quiet()
        replay = self._replay(stops=False)
        if cancelled and self._history.at(COMPENSATION, 0) is None:
            # A cancelled run without a record ends with its attempt, however much is still to be undone.  And
            # where the cancel met the commit that completes the run, nothing is to be undone at all.
            await replay.notebook.write([_first(frozen.makeups)])
        if not cancelled and self._history.end is None:
            # A run of which something is undone goes forward no more, though its failures should count anew
            # or its code be mended.
            await replay.notebook.write([_end_note(then)])
        ended = await replay.play(self._made_up(replay, frozen.makeups), COMPENSATION)
        match ended:
            case Suspend():
                return replace(ended, stopping=cancelled)
            case Returned(problems) if problems:
                return _with_problems(then, problems)
        return then

    async def _made_up(self, replay: Replay, makeups: Sequence[StepCall]) -> list[str]:
        problems = []
        for call in reversed(makeups):
            try:
                await perform(replay, call)
            except Exception as error:
                # One that fails does not keep the others from being made up for.
                problems.append(f"compensation {call.name!r} failed: {one_line(error)}")
        return problems

    # --- parts

    def _replay(self, *, frozen: bool = False, stops: bool = True) -> Replay:
        return Replay(self._ledger, self._history, self._customs, frozen=frozen, stops=stops)

    def _code(self, replay: Replay) -> Any:
        run = Run(replay, self._workflow, self._moments)
        return self._workflow.function(**{self._workflow.run_parameter: run}, **self._arguments)

    async def _load(self) -> None:
        memory = await self._ledger.load()
        if memory is None:
            raise LeaseLost(*self._ledger.fence)
        self._moments.set(memory.now)
        claimed = self._ledger.claimed
        self._history = History(first_seed(claimed.id, claimed.enqueued_at))
        self._history.fill(memory)


def _seed_note(seed: str) -> StepNote:
    return StepNote(
        branch=MAIN,
        place=SEED_PLACE,
        name="seed",
        kind=StepKind.SEED,
        state=StepState.COMPLETED,
        result=msgspec.json.encode(seed).decode(),
    )


def _stop(answer: Cancel) -> Fail | Stop:
    try:
        return Stop(reason_text(answer))
    except InputInvalid as invalid:
        return poisoned(str(invalid), str(invalid))


def _end_note(then: Fail | Stop) -> StepNote:
    return StepNote(
        branch=COMPENSATION,
        place=END_PLACE,
        name="end",
        kind=StepKind.END,
        state=StepState.COMPLETED,
        result=msgspec.json.encode(then).decode(),
    )


def _end(recorded: str) -> Fail | Stop:
    # Only a failure tells of an error.
    if "error" in msgspec.json.decode(recorded):
        return msgspec.json.decode(recorded, type=Fail)
    return msgspec.json.decode(recorded, type=Stop)


def _first(makeups: Sequence[StepCall]) -> StepNote:
    return StepNote(
        branch=COMPENSATION, place=0, name=makeups[-1].name, kind=StepKind.STEP, state=StepState.RUNNING
    )


def _with_problems(then: Fail | Stop, problems: list[str]) -> Fail | Stop:
    text = "; ".join(problems)
    if isinstance(then, Stop):
        return Stop(storable(f"{then.reason}; {text}"))
    return replace(then, error=storable(f"{then.error}\n\n{text}"), reason=storable(f"{then.reason}; {text}"))
