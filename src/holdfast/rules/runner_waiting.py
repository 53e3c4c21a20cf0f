"""Why no runner has taken an available job, in one sentence that says what to do about it."""

from __future__ import annotations

from holdfast.model.standing import RunnerDemand, Standing
from holdfast.model.worker import WorkerState
from holdfast.rules.liveness import Intervals, grade


def why_no_runner(job: Standing, demand: RunnerDemand) -> str | None:
    """Return which runner is missing, or None where all it takes is a turn."""
    if demand.runner is not None:
        return _why_pinned(job, demand, demand.runner)
    in_queue = f"{_runners(job.workers)} in queue {job.queue!r}"
    if job.workers == 0:
        return (
            f"no runner works on queue {job.queue!r}: start one with `holdfast runner --queues {job.queue}`"
        )
    if job.knowing == 0:
        return f"of {in_queue} none takes kind {job.kind!r}"
    if demand.labelled == 0:
        return f"of {in_queue} none has the labels {', '.join(sorted(demand.labels))}"
    if demand.ready == 0:
        return (
            f"every runner that could take it is draining ({demand.labelled}): `holdfast workers resume ID`"
        )
    return _why_full(job, demand)


def _why_full(job: Standing, demand: RunnerDemand) -> str | None:
    if demand.held >= demand.slots:
        return f"all slots ({demand.slots}) of {_runners(demand.ready)} are busy"
    if demand.roomy == 0:
        return f"{_runners(demand.ready)} could take it, but without capacity for more of queue {job.queue!r}"
    return None


def _why_pinned(job: Standing, demand: RunnerDemand, name: str) -> str | None:
    later = (
        ""
        if demand.pinned_until is None
        else f"; others may take it from {demand.pinned_until:%H:%M:%S} UTC on"
    )
    if demand.named_state is None or demand.silence is None or demand.ttl is None:
        return f"it is pinned to runner {name}, which was never registered{later}"
    intervals = Intervals.leasing_for(demand.ttl)
    heard = grade(WorkerState(demand.named_state), demand.silence, intervals)
    if heard != "online":
        return f"it is pinned to runner {name}, which is {heard}{later}"
    if demand.named_state == WorkerState.DRAINING:
        return f"it is pinned to runner {name}, which is draining: `holdfast workers resume ID`{later}"
    if demand.labelled == 0:
        return f"it is pinned to runner {name}, which does not have its queue, kind or labels{later}"
    full = _why_full(job, demand)
    return None if full is None else f"it is pinned to runner {name}: {full}{later}"


def _runners(count: int) -> str:
    return "1 runner" if count == 1 else f"{count} runners"
