"""What goes wrong between a runner and the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.errors.jobs import LeaseLost
from holdfast.errors.root import HoldfastError


class AssignmentStale(LeaseLost):
    """An assignment is not the runner's any more; *state*, *now*, *runner* and *outcome* say how it is.

    *now* is the attempt that is the newest, *outcome* what became of the one the runner speaks of.
    """

    def __init__(
        self, job_id: int, attempt: int, *, state: str, now: int, runner: str | None, outcome: str | None
    ) -> None:
        super().__init__(job_id, attempt)
        self.state, self.now, self.runner, self.outcome = state, now, runner, outcome


class AssignmentForeign(HoldfastError):
    """A token that is good for one assignment was shown for another one."""

    def __init__(self, job_id: int, attempt: int) -> None:
        super().__init__(
            f"this token is good for attempt {attempt} of job {job_id} alone: show the runner's own"
        )
        self.job_id, self.attempt = job_id, attempt


class RunnerSuperseded(HoldfastError):
    """Another registration has the runner's name, or the runner was forgotten."""

    def __init__(self, worker_id: int) -> None:
        super().__init__(
            f"runner {worker_id} was registered again or forgotten: stop, or register under another name"
        )
        self.worker_id = worker_id


class RunnerHolding(HoldfastError):
    """A runner cannot leave while it holds assignments."""

    def __init__(self, worker_id: int) -> None:
        super().__init__(f"runner {worker_id} still holds assignments: report the end of each, then leave")
        self.worker_id = worker_id


class ProtocolUnsupported(HoldfastError):
    """A runner speaks no version of the protocol that the server does."""

    def __init__(self, asked: Sequence[int], supported: Sequence[int]) -> None:
        spoken = ", ".join(map(str, asked)) or "none"
        known = ", ".join(map(str, supported))
        super().__init__(
            f"the runner speaks protocol {spoken}, this server {known}: update the older of the two"
        )
        self.asked, self.supported = list(asked), list(supported)


class ArtifactDiffers(HoldfastError):
    """Another file was kept under that name before; it stays."""

    def __init__(self, name: str, sha256: str) -> None:
        super().__init__(f"artifact {name!r} was kept before with other bytes: give this one another name")
        self.name, self.sha256 = name, sha256


class ArtifactsTooMany(HoldfastError):
    """An attempt has left as many files, or as many bytes of them, as it may."""

    def __init__(self, name: str, *, count: int, total_bytes: int) -> None:
        super().__init__(
            f"there is no room for artifact {name!r}: an attempt may leave {count} files "
            f"and {total_bytes:,} bytes; pack them into one, or leave less"
        )
        self.name, self.count, self.total_bytes = name, count, total_bytes


class ArtifactNotFound(HoldfastError):
    """An attempt has left no file of that name."""

    def __init__(self, job_id: int, attempt: int, name: str) -> None:
        super().__init__(
            f"attempt {attempt} of job {job_id} has left no artifact {name!r}: "
            f"`holdfast jobs artifacts {job_id}` lists what is there"
        )
        self.job_id, self.attempt, self.name = job_id, attempt, name


class ArtifactDamaged(HoldfastError):
    """The bytes of an artifact are not those that its runner left."""

    def __init__(self, name: str) -> None:
        super().__init__(f"artifact {name!r} does not have the SHA-256 that its runner gave: fetch it again")
        self.name = name


class LogsIncomplete(HoldfastError):
    """A stream of a log is not what its runner says it is: the server has *size* bytes of it."""

    def __init__(self, stream: str, *, size: int) -> None:
        super().__init__(
            f"{stream} has {size} bytes here, which is not what was announced: send the rest, or report a gap"
        )
        self.stream, self.size = stream, size


class LogNotFound(HoldfastError):
    """No runner has sent that stream of that attempt."""

    def __init__(self, job_id: int, attempt: int, stream: str) -> None:
        super().__init__(
            f"attempt {attempt} of job {job_id} has no stream {stream!r}: see its list of streams"
        )
        self.job_id, self.attempt, self.stream = job_id, attempt, stream


class LogOffsetWrong(HoldfastError):
    """A piece of a log does not go on where the server's copy ends; *size* is where that is."""

    def __init__(self, stream: str, *, offset: int, size: int) -> None:
        super().__init__(f"{stream} goes on at byte {size}, not at {offset}: send from there, or mark a gap")
        self.stream, self.offset, self.size = stream, offset, size


class LogRefused(HoldfastError):
    """A piece of a log contradicts the server's copy, which has *size* bytes, or comes after its end."""

    def __init__(self, stream: str, problem: str, *, size: int) -> None:
        super().__init__(f"{stream} {problem}; its {size} bytes stay as they are")
        self.stream, self.problem, self.size = stream, problem, size


class ProgramRefused(HoldfastError):
    """The system will not start the program of a job."""

    def __init__(self, program: str, problem: str) -> None:
        super().__init__(f"{program!r} cannot be started: {problem}")
        self.program, self.problem = program, problem


class SpecInvalid(HoldfastError):
    """What a runner was given to run is not what was enqueued, or makes no sense; *reason* is one word."""

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(f"{reason}: {problem}")
        self.reason, self.problem = reason, problem


class DatabaseOutOfReach(HoldfastError):
    """A handler on a runner asked for what only a process worker has, which sees the database."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} needs the database, which a runner does not see: run this kind on a worker")
        self.what = what


class RunnerBusy(HoldfastError):
    """Another process on this machine is this runner."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"another process is runner {name!r} already: give this one another --name or --folder"
        )
        self.name = name


class FolderUnwritable(HoldfastError):
    """A runner cannot keep anything in its folder."""

    def __init__(self, folder: str, problem: str) -> None:
        super().__init__(
            f"the folder {folder} cannot be written: {problem}; make room, or give another --folder"
        )
        self.folder, self.problem = folder, problem


class ServerUnavailable(HoldfastError):
    """The Holdfast server cannot be reached, or has no answer for now; it is worth asking again.

    *is_down* says that it is the server that is away, as far as that can be told, and not the network.
    """

    def __init__(self, address: str, problem: str, *, is_down: bool = False) -> None:
        super().__init__(f"the Holdfast server at {address} does not answer: {problem}")
        self.address, self.problem, self.is_down = address, problem, is_down


class ServerRefused(HoldfastError):
    """The Holdfast server refused a request: *status* is HTTP's, *problem* what it says itself.

    *facts* are the other fields of its answer.
    """

    def __init__(self, status: int, problem: str, facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"the Holdfast server refused ({status}): {problem}")
        self.status, self.problem, self.facts = status, problem, dict(facts or {})

    @property
    def type(self) -> str:
        """The last word of the problem's type, such as ``logs-incomplete``; empty where there is none."""
        return str(self.facts.get("type", "")).rpartition(":")[2]

    @property
    def is_superseded(self) -> bool:
        """True where another process has registered under the runner's name."""
        return self.type == "runner-superseded"

    @property
    def is_about_token(self) -> bool:
        """True where the server does not know the token, or not any more."""
        return self.status == 401

    @property
    def is_about_body(self) -> bool:
        """True where the server cannot take what was said: it is too long, or none of its words."""
        return self.status in (400, 413)
