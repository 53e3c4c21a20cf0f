"""Everything about a live job that decides when it runs next."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from holdfast.model.job import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerDemand:
    """What an available job asks of runners, and how those stand that could take it.

    *labelled* of them have its queue, kind and labels, and are the one that it is pinned to; *ready* of these
    may claim, with *slots* in all, of which *held* are taken; *roomy* may hold more of its queue.
    *named_state*, *silence* and *ttl* (in seconds, that of its lease) are of the runner that it is pinned to.
    """

    labels: tuple[str, ...]
    runner: str | None
    pinned_until: datetime | None
    named_state: str | None
    silence: float | None
    ttl: float | None
    labelled: int
    ready: int
    slots: int
    held: int
    roomy: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A live job among its queue's limits and workers, all as of *now*.

    *running* and *key_running* count what is held in its queue and under its concurrency key;
    *workers* those online in its queue, which are runners where it has a *demand*, *knowing* those of them
    with a handler for its kind, with *slots* in all, of which *busy* are taken.  *ahead* counts available
    jobs that go first, up to 1000.
    *lease_expires_at* is when the lease of its worker runs out; *leads* says that there is a leader.

    Of a run: *suspended_for* is what it waits for, in words; among that are *signals*, *children_left* of
    its *children*, and *wake_at*.  *run_paused* says that it is held back, by whom stands in *pause_reason*,
    which is None where its code does not fit its record; *stopping*, that it makes up for its steps.
    *known_versions* are the kinds of the same name that workers know, where none knows its own; *elsewhere*
    then are other queues, up to five, in which workers know it.
    """

    job_id: int
    now: datetime
    state: JobState
    queue: str
    kind: str
    run_at: datetime | None
    failures: int
    concurrency_key: str | None
    worker_id: int | None
    worker: str | None
    lease_expires_at: datetime | None
    cancel_requested_at: datetime | None
    paused: bool
    max_running: int | None
    key_limit: int
    running: int
    key_running: int
    workers: int
    knowing: int
    slots: int
    busy: int
    ahead: int
    leads: bool
    suspended_for: str | None = None
    run_paused: bool = False
    pause_reason: str | None = None
    stopping: bool = False
    wake_at: datetime | None = None
    signals: list[str] = field(default_factory=list)
    children: int = 0
    children_left: int = 0
    known_versions: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    demand: RunnerDemand | None = None
