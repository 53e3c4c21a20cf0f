"""What a run waits for: times, signals, children."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.app.handler import JobRequest
from holdfast.app.keywords import ChildOptions, check_names
from holdfast.errors import (
    ChildFailed,
    ChildrenGone,
    HoldfastError,
    InputInvalid,
    OptionInvalid,
    PayloadTooLarge,
    SignalTimeout,
)
from holdfast.model.job import NewJob
from holdfast.model.step import StepKind, StepState
from holdfast.store import children
from holdfast.store.children import Ends, Place
from holdfast.workflow.branch import Spot, Wait
from holdfast.workflow.failures import recorded
from holdfast.workflow.history import Entry
from holdfast.workflow.replay import Replay
from holdfast.workflow.rest import SHORT

# How often a branch looks for what it waits for while another one keeps the run in memory, in seconds.
LOOK_EVERY = 0.5
# How often all branches of a run look together, at most, in a second: thousands of them look less often each.
MOST_LOOKS = 200
# How much the results of children that are waited for together may come to.
MAX_ENDS_BYTES = 64 * 1024 * 1024
POLICIES = ("cancel", "abandon")


async def sleep(replay: Replay, seconds: float, reason: str) -> None:
    """Sleep for *seconds* from the first time on, however often the run is replayed meanwhile."""
    spot = replay.enter(StepKind.SLEEP, "sleep")
    if spot.is_final:
        return
    with replay.occupied(spot):
        entry = spot.entry
        due = entry.due if entry is not None and entry.due is not None else time.monotonic() + seconds
        if replay.frozen or due > time.monotonic():
            await replay.begin(spot)
        if due > time.monotonic():
            await _until(replay, spot, Wait(reason, due=due))
        replay.remember(spot.note(StepState.COMPLETED))


async def _until(replay: Replay, spot: Spot, wait: Wait) -> None:
    """Wait; the end of a long wait is recorded at once where others keep the run from being suspended."""
    left = None if wait.due is None else wait.due - time.monotonic()
    if spot.entry is None and left is not None:
        note = spot.note(StepState.RUNNING, due=wait.due)
        if left > SHORT and not replay.is_last():
            await replay.save(note)
            spot.entry = replay.history.at(spot.branch.name, spot.place)
        else:
            wait.note = note
    await replay.wait(spot, wait)


async def signal(replay: Replay, name: str, timeout: float | None) -> Any:
    """Return the payload of the next signal of that name; raises `SignalTimeout`."""
    entry = await replay.settled(StepKind.SIGNAL, name, lambda spot: _take_signal(replay, spot, timeout))
    if entry.state is StepState.FAILED:
        raise SignalTimeout(name)
    try:
        return msgspec.json.decode(entry.result or "[null]")[0]
    except (msgspec.DecodeError, RecursionError) as error:
        # Plain SQL may send numbers and depths that Python has not.
        msg = f"the payload of signal {name!r} cannot be read: {error}"
        raise InputInvalid(msg) from None


async def _take_signal(replay: Replay, spot: Spot, timeout: float | None) -> None:
    due = spot.entry.due if spot.entry is not None else None
    if due is None and timeout is not None:
        due = time.monotonic() + timeout
    while True:
        taken = await replay.take_signal(spot)
        if taken.paused:
            replay.notebook.paused = True
        if taken.text is not None:
            _complete(replay, spot, taken.text)
            return
        if due is not None and due <= time.monotonic():
            await replay.save(spot.note(StepState.FAILED))
            return
        look = _next_look(replay)
        await _until(replay, spot, Wait(f"signal {spot.name!r}", due=due, look=look, signal=spot.name))


def _next_look(replay: Replay) -> float:
    return time.monotonic() + max(LOOK_EVERY, len(replay.branches) / MOST_LOOKS)


def _complete(replay: Replay, spot: Spot, text: str) -> None:
    entry = Entry(spot.name, spot.kind, StepState.COMPLETED, result=text, visited=True)
    replay.history.put(spot.branch.name, spot.place, entry)


End = tuple[int, str, Any, str | None]


async def family(
    replay: Replay, kind: StepKind, name: str, jobs: Sequence[NewJob], detail: dict[str, Any]
) -> list[End]:
    """Start children and return how each ended: id, outcome, result, reason."""
    entry = await replay.settled(kind, name, lambda spot: _take_children(replay, spot, jobs, detail))
    if entry.state is StepState.FAILED:
        raise replay.failures.rebuilt(name, entry.error or "{}")
    return [tuple(end) for end in msgspec.json.decode(entry.result or "[]")]


async def _take_children(replay: Replay, spot: Spot, jobs: Sequence[NewJob], detail: dict[str, Any]) -> None:
    entry = spot.entry
    if entry is None or entry.child_id is None:
        found, lives = await _start_children(replay, spot, jobs, detail), True
    else:
        # A run that wakes has just been told which of its families live: thousands need not ask one by one.
        found, lives = entry.child_id, entry.waits
    reason = f"child {found}" if len(jobs) == 1 else f"{len(jobs)} children from {found} on"
    while lives or not await _have_ended(replay, spot, found, len(jobs)):
        lives = False
        await replay.wait(spot, Wait(reason, look=_next_look(replay), family=found))


async def _start_children(replay: Replay, spot: Spot, jobs: Sequence[NewJob], detail: dict[str, Any]) -> int:
    """Start a family at a place; answers the id of its first child, which stands for all of them."""
    place = Place(spot.branch.name, spot.place, spot.name, spot.kind, msgspec.json.encode(detail).decode())
    found: int = await replay.ask(children.start_children(replay.ledger.fence, place, jobs))
    if not found:
        # The cancel is on its way here, or finds the run asleep; one that is paused begins anew here.
        await replay.wait(spot, Wait("its cancel or a resume", parks=True))
    entry = Entry(spot.name, spot.kind, StepState.RUNNING, child_id=found, visited=True)
    replay.history.put(spot.branch.name, spot.place, entry)
    return found


async def _have_ended(replay: Replay, spot: Spot, family: int, count: int) -> bool:
    """Record how children ended, or why that will never be known; False: some live."""
    take = children.take_children(
        replay.ledger.fence,
        spot.branch.name,
        spot.place,
        family=family,
        count=count,
        most=MAX_ENDS_BYTES,
    )
    taken = await replay.ask(take)
    if taken.text is not None:
        _complete(replay, spot, taken.text)
        return True
    error = _refusal(spot, taken, count)
    if error is not None:
        await replay.save(spot.note(StepState.FAILED, error=recorded(error)))
    return error is not None


def _refusal(spot: Spot, taken: Ends, count: int) -> HoldfastError | None:
    """Return why the ends of children will never be had; None: they may come."""
    if taken.excess is not None:
        return PayloadTooLarge(f"the results of {spot.name!r}", size=taken.excess, limit=MAX_ENDS_BYTES)
    if taken.missing is not None:
        return ChildrenGone(spot.name, missing=taken.missing, count=count)
    return None


def results(ends: Sequence[End]) -> list[Any]:
    """Return the results of children; raises `ChildFailed` for the first one that has none."""
    unhappy = [end for end in ends if end[1] != "completed"]
    if unhappy:
        job_id, outcome, _, reason = unhappy[0]
        raise ChildFailed(job_id, outcome, reason or "no reason is recorded", others=len(unhappy) - 1)
    return [end[2] for end in ends]


def result_or_failure(end: End) -> Any:
    """Return the result of a child, or the `ChildFailed` that says why it has none."""
    job_id, outcome, result, reason = end
    return (
        result if outcome == "completed" else ChildFailed(job_id, outcome, reason or "no reason is recorded")
    )


def checked_policy(policy: str) -> str:
    """Return what becomes of children when their parent is cancelled; raises `OptionInvalid`."""
    if policy not in POLICIES:
        raise OptionInvalid("policy", policy, "use cancel or abandon")
    return policy


def checked_requests(requests: Sequence[Any]) -> None:
    """Raise `OptionInvalid` for what is no request, and for options that children do not take."""
    for request in requests:
        if not isinstance(request, JobRequest):
            raise OptionInvalid("request", request, "give what the handler's .job(...) returns")
        if request.own is not None:
            check_names(request.own, ChildOptions.__annotations__)
