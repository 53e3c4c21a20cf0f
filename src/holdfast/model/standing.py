"""Everything about a live job that decides when it runs next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.model.job import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A live job among its queue's limits and workers, all as of *now*.

    *running* and *key_running* count what is held in its queue and under its concurrency key;
    *workers* those online in its queue, *knowing* those of them with a handler for its kind, with
    *slots* in all, of which *busy* are taken.  *ahead* counts available jobs that go first, up to 1000.
    *lease_expires_at* is when the lease of its worker runs out; *leads* says that there is a leader.
    *suspended_for* is what a suspended run waits for, *run_paused* that an operator holds it back.
    """

    now: datetime
    state: JobState
    queue: str
    kind: str
    run_at: datetime
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
