"""Runs over HTTP: listed, shown as trees, with what they remember."""

from __future__ import annotations

from typing import Annotated

from litestar import Router
from litestar.params import FromQuery, QueryParameter

from holdfast import errors
from holdfast.client.run_operator import DEEPEST, DEEPEST_OF_ALL
from holdfast.client.wire.runs import LARGEST_PLACE, Activities, History, RunPage, RunSort
from holdfast.client.wire.shape import LARGEST_ID
from holdfast.model.job import JobState
from holdfast.model.run import RunFilter, RunNode, UnreadSignal
from holdfast.web.api.routes import Before, Id, Limit, look, next_page
from holdfast.web.given import GivenOperator

ON_A_RUN = (errors.JobNotFound, errors.NotARun)

Place = Annotated[int, QueryParameter(ge=-1, le=LARGEST_PLACE)]


@look("/", raises=(errors.DatabaseRefused,))
async def list_runs(
    operator: GivenOperator,
    *,
    states: Annotated[list[JobState] | None, QueryParameter(name="state")] = None,
    kind: FromQuery[str | None] = None,
    queue: FromQuery[str | None] = None,
    signal: FromQuery[str | None] = None,
    paused: FromQuery[bool] = False,
    limit: Limit = 50,
    before: Before = None,
) -> RunPage:
    """List runs, newest first, and what each one waits for."""
    chosen = RunFilter(states=tuple(states or ()), kind=kind, queue=queue, signal=signal, paused=paused)
    found = list(await operator.runs.find(chosen, limit=limit, before=before))
    return RunPage(found, next_page(found, limit))


@look("/{run_id:int}", raises=ON_A_RUN)
async def show_run(
    run_id: Id,
    operator: GivenOperator,
    depth: Annotated[int, QueryParameter(ge=0, le=DEEPEST_OF_ALL)] = DEEPEST,
) -> RunNode:
    """Show a run with its steps, what it waits for, and its children down to *depth*."""
    return await operator.runs.show(run_id, depth=depth)


@look("/{run_id:int}/signals", raises=ON_A_RUN)
async def list_signals(run_id: Id, operator: GivenOperator) -> list[UnreadSignal]:
    """List the signals that a run has not read yet, oldest first."""
    return list(await operator.runs.signals(run_id))


@look("/{run_id:int}/history", raises=ON_A_RUN)
async def read_history(
    run_id: Id,
    operator: GivenOperator,
    after_branch: FromQuery[str | None] = None,
    after_place: Place = -1,
    limit: Limit = 1000,
) -> History:
    """List what a run has recorded, in the order in which it began, after a branch and place."""
    after = None if after_branch is None else (after_branch, after_place)
    return History(list(await operator.runs.history(run_id, after=after, limit=limit)))


@look("/{run_id:int}/activities", raises=ON_A_RUN)
async def read_activities(
    run_id: Id,
    operator: GivenOperator,
    after: Annotated[int, QueryParameter(ge=0, le=LARGEST_ID)] = 0,
    limit: Limit = 1000,
) -> Activities:
    """List the log of a run's step calls."""
    found = list(await operator.runs.activities(run_id, after=after, limit=limit))
    return Activities(found, next_page(found, limit))


@look("/{run_id:int}/sort", raises=(errors.JobNotFound,))
async def sort_of_job(run_id: Id, operator: GivenOperator) -> RunSort:
    """Say whether a job is a run."""
    return RunSort(await operator.runs.is_run(run_id))


router = Router(
    "/runs",
    route_handlers=[list_runs, show_run, list_signals, read_history, read_activities, sort_of_job],
    tags=["runs"],
)
