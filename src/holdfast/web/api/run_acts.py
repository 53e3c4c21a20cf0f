"""What is done to runs over HTTP."""

from __future__ import annotations

from litestar import Router
from litestar.params import JSONBody

from holdfast import errors
from holdfast.client.wire.jobs import Cancelled, Done
from holdfast.client.wire.runs import ForkOrder, Met, Signalled, SignalOrder
from holdfast.client.wire.shape import Because
from holdfast.model.token import Right
from holdfast.web.api.routes import Id, act, reason_of
from holdfast.web.api.runs import ON_A_RUN
from holdfast.web.given import GivenOperator

CONFLICTING = (*ON_A_RUN, errors.StateConflict)


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
