"""Why a live job is not running yet, in one sentence that says what to do about it."""

from __future__ import annotations

from datetime import UTC, datetime
from shlex import quote

from holdfast.model.job import JobState
from holdfast.model.standing import Standing
from holdfast.rules.runner_waiting import why_no_runner

MOST_COUNTED = 1000


def why_waiting(job: Standing) -> str | None:
    """Return what *job* waits for, or None where it runs as it should."""
    match job.state:
        case JobState.SCHEDULED:
            return _scheduled(job)
        case JobState.AVAILABLE:
            return _refused(job) or _unserved(job) or _queued(job)
        case JobState.WAITING:
            return _suspended(job)
    return _held(job)


def _scheduled(job: Standing) -> str:
    again = f" again after {_count(job.failures, 'failure')}" if job.failures else ""
    due = job.run_at or job.now
    if due > job.now:
        return f"it is due{again} at {_moment(due)}"
    return _overdue(job, due)


def _overdue(job: Standing, due: datetime) -> str:
    if not job.leads:
        return f"it was due at {_moment(due)}, but nobody leads: start a worker, which makes it available"
    return f"it has been due since {_moment(due)}: the leader makes it available in a moment"


def _suspended(job: Standing) -> str:
    if job.run_paused and job.pause_reason is None:
        return f"{job.suspended_for}: `holdfast runs resume {job.job_id}`"
    if job.run_paused:
        return f"it is held back ({job.pause_reason}): `holdfast runs resume {job.job_id}` lets it go on"
    if job.wake_at is not None and job.wake_at <= job.now:
        return _overdue(job, job.wake_at)
    stopping = "its cancel was requested and it makes up for its steps: " if job.stopping else ""
    return f"{stopping}it waits for {_awaited(job)}"


def _awaited(job: Standing) -> str:
    """Say what a suspended run waits for, how much of it is left, and how to send what it wants to hear."""
    text = job.suspended_for or "a signal, a timer or a child"
    if job.children > 1:
        text += f", {job.children_left} of {job.children} children are left"
    if job.wake_at is not None:
        latest = " at the latest" if job.signals or job.children else ""
        text += f", until {_moment(job.wake_at)}{latest}"
    if job.signals:
        text += f": `holdfast runs signal {job.job_id} {quote(job.signals[0])}` sends the signal"
    return text


def _refused(job: Standing) -> str | None:
    """Say which switch or limit of its queue holds it up."""
    if job.paused:
        return f"queue {job.queue!r} is paused: `holdfast queues resume {job.queue}` lets it go on"
    if job.max_running is not None and job.running >= job.max_running:
        return (
            f"queue {job.queue!r} is at its limit, {job.running} of at most {job.max_running} running: "
            f"`holdfast queues limit {job.queue} N` raises it"
        )
    if job.concurrency_key is not None and job.key_running >= job.key_limit:
        return (
            f"{job.key_running} of at most {job.key_limit} jobs with concurrency key "
            f"{job.concurrency_key!r} are running"
        )
    return None


def _unserved(job: Standing) -> str | None:
    """Say which worker is missing."""
    if job.demand is not None:
        return why_no_runner(job, job.demand)
    if job.workers == 0:
        missing = f"no online worker works on queue {job.queue!r}"
        return f"{missing}: start one with --queues {job.queue}{_elsewhere(job)}"
    if job.knowing == 0:
        online = f"{_count(job.workers, 'worker')} online in queue {job.queue!r}"
        if job.known_versions:
            others = ", ".join(job.known_versions)
            remedy = "deploy that version too, or name it in also= of a newer one"
            return f"of {online} none knows {job.kind!r}, only {others}: {remedy}"
        return f"of {online} none knows kind {job.kind!r}: deploy its handler{_elsewhere(job)}"
    return None


def _elsewhere(job: Standing) -> str:
    """Name the queues in which it would run: it may have been enqueued without the application's options."""
    if not job.elsewhere:
        return ""
    queues = ", ".join(map(repr, job.elsewhere))
    return f", or enqueue it in a queue whose workers know {job.kind!r}: {queues}"


def _queued(job: Standing) -> str:
    more = "or more " if job.ahead >= MOST_COUNTED else ""
    ahead = f"{job.ahead} {more}available jobs go first" if job.ahead != 1 else "1 available job goes first"
    if job.busy >= job.slots:
        return f"all slots ({job.slots}) of {_count(job.knowing, 'worker')} are busy, and {ahead}"
    if job.ahead:
        return ahead
    return "it is about to be claimed"


def _held(job: Standing) -> str | None:
    holder = f"worker {job.worker_id} ({job.worker})"
    if job.lease_expires_at is not None and job.lease_expires_at <= job.now:
        rescue = "the leader rescues it" if job.leads else "nobody leads: start a worker, which rescues it"
        return f"{holder} has not renewed its lease since {_moment(job.lease_expires_at)}: {rescue}"
    if job.cancel_requested_at is not None:
        return f"its cancel was requested at {_moment(job.cancel_requested_at)}: {holder} is to stop it"
    if job.run_paused:
        return f"it parks at its next step ({job.pause_reason})"
    if job.state is JobState.CLAIMED:
        room = "" if job.max_running is None else f" and the limit of queue {job.queue!r} allows"
        return f"{holder} has claimed it and begins it as soon as a slot is free{room}"
    return None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
