"""What an operator may do to a job in which state, and what to do instead."""

from __future__ import annotations

from enum import StrEnum

from holdfast.errors import OptionInvalid, StateConflict
from holdfast.model.job import LIVE_STATES, JobState


class Intervention(StrEnum):
    """An act of an operator on a job."""

    CANCEL = "cancel"
    RETRY = "retry"
    DISCARD = "discard"


PARTICIPLE = {
    Intervention.CANCEL: "cancelled",
    Intervention.RETRY: "retried",
    Intervention.DISCARD: "discarded",
}
_HELD = frozenset({JobState.CLAIMED, JobState.RUNNING})

ALLOWED: dict[Intervention, frozenset[JobState]] = {
    Intervention.CANCEL: LIVE_STATES,
    Intervention.RETRY: frozenset({JobState.FAILED, JobState.CANCELLED, JobState.SCHEDULED}),
    Intervention.DISCARD: LIVE_STATES - _HELD,
}
# Of many jobs, those are meant that the act is mostly for; others have to be named by their state.
MEANT: dict[Intervention, frozenset[JobState]] = ALLOWED | {Intervention.RETRY: frozenset({JobState.FAILED})}


def refusal(job_id: int, action: Intervention, state: JobState) -> StateConflict:
    """Return the error that says why *action* does not fit *state*, and what to do instead."""
    return StateConflict(job_id, action=PARTICIPLE[action], state=state, remedy=_remedy(action, state))


def meant_states(action: Intervention, asked: tuple[JobState, ...]) -> tuple[JobState, ...]:
    """Return the states in which many jobs get *action*; raises `OptionInvalid` for one that forbids it."""
    for state in asked:
        if state not in ALLOWED[action]:
            fitting = ", ".join(one for one in JobState if one in ALLOWED[action])
            raise OptionInvalid("state", state.value, f"only these can be {PARTICIPLE[action]}: {fitting}")
    return asked or tuple(state for state in JobState if state in MEANT[action])


def _remedy(action: Intervention, state: JobState) -> str:
    if action is Intervention.RETRY and state is JobState.COMPLETED:
        return "enqueue it anew"
    if action is Intervention.RETRY and state in ALLOWED[action] and state.is_final:
        return "it has made up for its steps: fork it at one of them, or enqueue it anew"
    if state.is_final:
        return "it has ended already"
    if action is Intervention.DISCARD and state in _HELD:
        return "cancel it, so that its worker stops it"
    if state is JobState.AVAILABLE:
        return "it runs as soon as a worker takes it"
    return "wait until it ends, or cancel it first"
