"""What is done to runs over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Router
from litestar.params import JSONBody

from holdfast import errors
from holdfast.model.step import MAIN
from holdfast.model.token import Right
from holdfast.web.api.job_acts import Cancelled, Done
from holdfast.web.api.routes import Because, Id, Why, act, reason_of
from holdfast.web.api.runs import LARGEST_PLACE, ON_A_RUN
from holdfast.web.given import GivenOperator

CONFLICTING = (*ON_A_RUN, errors.StateConflict)

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class SignalOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A signal; a second one with the same *key* is the first one."""

    name: Name
    payload: Any = None
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=500)] | None = None
    reason: Why = None


class Signalled(msgspec.Struct, frozen=True):
    """The signal that was sent."""

    id: int


class ForkOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Behind which finished step a fork begins: the last one of that name, or that at *place*."""

    at: Name
    branch: str = MAIN
    place: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_PLACE)] | None = None
    reason: Why = None


class Met(msgspec.Struct, frozen=True):
    """The runs that were met: the one that was asked for, and its children that follow it."""

    ids: list[int]


@act(
    "/{run_id:int}/signal",
    Right.ENQUEUE,
    status=201,
    raises=(*ON_A_RUN, errors.RunEnded, errors.PayloadTooLarge),
)
async def send_signal(run_id: Id, data: JSONBody[SignalOrder], operator: GivenOperator) -> Signalled:
    """Send a signal to a run, before or while it waits for it."""
    sent = await operator.runs.signal(run_id, data.name, data.payload, key=data.key, reason=data.reason)
    return Signalled(sent)


@act("/{run_id:int}/pause", Right.OPERATE, raises=CONFLICTING)
async def pause_run(run_id: Id, operator: GivenOperator, data: JSONBody[Because | None] = None) -> Met:
    """Pause a run, and its children that follow it, at their next step."""
    return Met(list(await operator.runs.pause(run_id, reason_of(data))))


@act("/{run_id:int}/resume", Right.OPERATE, raises=CONFLICTING)
async def resume_run(run_id: Id, operator: GivenOperator, data: JSONBody[Because | None] = None) -> Met:
    """Let a paused run go on with its children, or one whose code did not fit its record."""
    return Met(list(await operator.runs.resume(run_id, reason_of(data))))


@act("/{run_id:int}/cancel", Right.OPERATE, raises=CONFLICTING)
async def cancel_run(run_id: Id, operator: GivenOperator, data: JSONBody[Because | None] = None) -> Cancelled:
    """Cancel a run, which makes up for its steps first."""
    return Cancelled(await operator.runs.cancel(run_id, reason_of(data)))


@act("/{run_id:int}/retry", Right.OPERATE, raises=(*CONFLICTING, errors.DuplicateJob))
async def retry_run(run_id: Id, operator: GivenOperator, data: JSONBody[Because | None] = None) -> Done:
    """Take a failed or cancelled run up from its failed step."""
    await operator.runs.retry(run_id, reason_of(data))
    return Done(run_id)


@act("/{run_id:int}/fork", Right.OPERATE, status=201, raises=(*CONFLICTING, errors.StepNotFound))
async def fork_run(run_id: Id, data: JSONBody[ForkOrder], operator: GivenOperator) -> Done:
    """Enqueue a run that remembers what another one had recorded up to the end of a step; answers its id."""
    forked = await operator.runs.fork(
        run_id, at=data.at, branch=data.branch, place=data.place, reason=data.reason
    )
    return Done(forked)


router = Router(
    "/runs",
    route_handlers=[send_signal, pause_run, resume_run, cancel_run, retry_run, fork_run],
    tags=["runs"],
)
