"""What cannot be done to jobs, queues, workers and schedules, and how awaited jobs ended."""

from __future__ import annotations

from holdfast.errors.root import HoldfastError


class DuplicateJob(HoldfastError):
    """A live job has the same unique key and the policy is to reject."""

    def __init__(self, unique_key: str, job_id: int | None = None) -> None:
        holder = f"job {job_id}" if job_id is not None else "a live job"
        super().__init__(f"{holder} already holds unique key {unique_key!r}")
        self.unique_key, self.job_id = unique_key, job_id


class JobNotFound(HoldfastError):
    """No job has that id, or it was pruned."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"job {job_id} does not exist (it may have been pruned)")
        self.job_id = job_id


class QueueNotFound(HoldfastError):
    """No queue of that name is known."""

    def __init__(self, name: str) -> None:
        super().__init__(f"queue {name!r} is unknown: see `holdfast queues list`, or make it by --create")
        self.name = name


class WorkerNotFound(HoldfastError):
    """No worker has that id."""

    def __init__(self, worker_id: int) -> None:
        super().__init__(f"worker {worker_id} is unknown: see `holdfast workers list`")
        self.worker_id = worker_id


class WorkerEnded(HoldfastError):
    """The worker is gone, so that nothing can be asked of it."""

    def __init__(self, worker_id: int, state: str) -> None:
        super().__init__(f"worker {worker_id} is {state}: it takes no jobs any more")
        self.worker_id, self.state = worker_id, state


class ScheduleNotFound(HoldfastError):
    """No schedule has that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"schedule {name!r} is unknown: see `holdfast schedules list`")
        self.name = name


class StateConflict(HoldfastError):
    """The job's state does not allow the action; nothing was changed."""

    def __init__(self, job_id: int, *, action: str, state: str, remedy: str | None = None) -> None:
        advice = f"; {remedy}" if remedy else ""
        super().__init__(f"job {job_id} is {state}: it cannot be {action}{advice}")
        self.job_id, self.action, self.state = job_id, action, state


class LeaseLost(HoldfastError):
    """The attempt no longer owns its job; the write changed nothing."""

    def __init__(self, job_id: int, attempt: int) -> None:
        super().__init__(f"attempt {attempt} of job {job_id} has lost its lease: stop working on it")
        self.job_id, self.attempt = job_id, attempt


class JobFailed(HoldfastError):
    """The awaited job ended as failed."""

    def __init__(self, job_id: int, error: str) -> None:
        super().__init__(f"job {job_id} failed: {error}")
        self.job_id, self.error = job_id, error


class JobCancelled(HoldfastError):
    """The awaited job ended as cancelled."""

    def __init__(self, job_id: int, reason: str) -> None:
        super().__init__(f"job {job_id} was cancelled: {reason}")
        self.job_id, self.reason = job_id, reason


class WaitTimeout(HoldfastError):
    """The awaited job did not end in time; it lives on in *state*, and *why* it waits is said where known."""

    def __init__(self, job_id: int, seconds: float, *, state: str, why: str | None = None) -> None:
        reason = f": {why}" if why else ""
        super().__init__(f"job {job_id} has not ended within {seconds:g} s, it is still {state}{reason}")
        self.job_id, self.seconds, self.state, self.why = job_id, seconds, state, why
