"""Which jobs are meant: the filter of a listing or of an action on many jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.errors import OptionInvalid
from holdfast.model.job import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Jobs that fit everything that is given; None, no states and no tags ask for nothing.

    *since* and *until* bound when a job was enqueued, *ended_since* and *ended_until* when it ended,
    the later bound being left out.  *tags* must all be there; *worker_id* holds the job or ended it;
    keys are compared to the letter; *text* occurs in the arguments, the reason or the error, in
    whatever case.  Raises `OptionInvalid` for an empty *text*, which occurs in every job.
    """

    states: tuple[JobState, ...] = ()
    kind: str | None = None
    queue: str | None = None
    tags: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    ended_since: datetime | None = None
    ended_until: datetime | None = None
    worker_id: int | None = None
    text: str | None = None
    unique_key: str | None = None
    concurrency_key: str | None = None

    def __post_init__(self) -> None:
        if self.text is not None and not self.text:
            raise OptionInvalid("text", self.text, "give some text, or leave it out")

    @property
    def live_states(self) -> list[JobState]:
        """The states asked for in which a job lives; none where only ended jobs can have an end in time."""
        if self.ended_since is not None or self.ended_until is not None:
            return []
        return [state for state in self.states or JobState if not state.is_final]

    @property
    def final_states(self) -> list[JobState]:
        """The states asked for in which a job has ended."""
        return [state for state in self.states or JobState if state.is_final]
