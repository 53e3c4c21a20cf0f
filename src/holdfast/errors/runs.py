"""What goes wrong in runs."""

from __future__ import annotations

from holdfast.errors.root import HoldfastError


class StepFailed(HoldfastError):
    """A step failed with an error whose type is not known, or with a `Retry` or `Cancel` that it returned.

    *kind* is that type, ``Retry`` (after the last try) or ``Cancel``; *problem* is what it said.
    """

    def __init__(self, step: str, kind: str, problem: str) -> None:
        # What has no module of its own cannot be registered.
        remedy = " (to catch it as itself, register it with `app.error`)" if "." in kind else ""
        super().__init__(f"step {step!r} failed: {kind}: {problem}{remedy}")
        self.step, self.kind, self.problem = step, kind, problem


class ChildFailed(HoldfastError):
    """A child of a run ended as failed or cancelled; *others* counts its siblings that did so too."""

    def __init__(self, job_id: int, outcome: str, reason: str, *, others: int = 0) -> None:
        more = f" (and {others} more of its siblings)" if others else ""
        super().__init__(f"child {job_id} {outcome}: {reason}{more}")
        self.job_id, self.outcome, self.reason, self.others = job_id, outcome, reason, others


class ChildrenGone(HoldfastError):
    """A run was taken up again so late that the ends of *missing* of its children are kept no longer."""

    def __init__(self, name: str, *, missing: int, count: int) -> None:
        super().__init__(
            f"{missing:,} of {count:,} ends of children of {name!r} are kept no longer: "
            "retry a run while the retention of its children's queue lasts, or fork it from an earlier place"
        )
        self.name, self.missing, self.count = name, missing, count


class SignalTimeout(HoldfastError, TimeoutError):
    """The signal that a run waited for did not come in time."""

    def __init__(self, name: str) -> None:
        super().__init__(f"signal {name!r} did not come in time")
        self.name = name


class CutShort(HoldfastError, TimeoutError):
    """A timeout around a step or a wait of a run, such as asyncio's, has ended it; *what* says which."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} was cut short by a timeout around it, which counts anew whenever the run goes on: "
            "use run.step(..., timeout=...) or run.wait_signal(..., timeout=...)"
        )
        self.what = what


class NonDeterministicRun(HoldfastError):
    """The code of a run asks for another step than was recorded at that place; the run is kept."""

    def __init__(self, run_id: int, *, branch: str, place: int, recorded: str, asked: str) -> None:
        super().__init__(
            f"run {run_id} recorded {recorded} at place {place} of branch {branch!r}, its code now asks for "
            f"{asked}: mend the code (see run.patched), then resume the run"
        )
        self.run_id, self.branch, self.place = run_id, branch, place
        self.recorded, self.asked = recorded, asked


class RunEnded(HoldfastError):
    """The run has ended or never was: it takes no signals."""

    def __init__(self, run_id: int) -> None:
        super().__init__(f"run {run_id} has ended or does not exist: it takes no signals")
        self.run_id = run_id


class NotARun(HoldfastError):
    """The job is no execution of a workflow, so that it has no steps and takes no signals."""

    def __init__(self, job_id: int, kind: str) -> None:
        super().__init__(f"job {job_id} is not a run: its kind {kind!r} is no workflow, see `holdfast jobs`")
        self.job_id, self.kind = job_id, kind


class BlobNotFound(HoldfastError):
    """There is no such blob: its run was pruned, or began anew."""

    def __init__(self, blob_id: int) -> None:
        super().__init__(f"blob {blob_id} does not exist (its run may have been pruned or begun anew)")
        self.blob_id = blob_id


class StepNotFound(HoldfastError):
    """The run has no finished step of that name in that branch; *finished* are those that it has."""

    def __init__(self, run_id: int, step: str, branch: str, finished: tuple[str, ...] = ()) -> None:
        known = f"finished are {', '.join(finished)}" if finished else "it has finished none yet"
        super().__init__(f"run {run_id} has no finished step {step!r} in branch {branch!r}: {known}")
        self.run_id, self.step, self.branch, self.finished = run_id, step, branch, finished
