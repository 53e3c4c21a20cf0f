"""Every error that Holdfast raises on purpose.

HoldfastError
├── InputInvalid                 what the caller gave cannot be used
│   ├── ArgumentsInvalid         arguments do not fit the handler's signature
│   ├── OptionInvalid            an option of a job, queue or worker is out of range
│   ├── ConnectionUnsupported    a caller's connection is of no kind that the client takes
│   ├── PayloadTooLarge          arguments, result, log or checkpoint exceed their limit
│   ├── BackoffInvalid           a retry policy makes no sense
│   ├── ScheduleInvalid          a schedule's rule or time zone makes no sense
│   ├── StepsAtOnce              two steps at once in one branch of a run
│   ├── BodyInvalid              the body of a request is not what its route takes
│   ├── SettingInvalid           a setting is unknown or has a bad value
│   └── AppNotFound              there is no application at that address
├── LineInvalid                  a line of a stream of jobs is no job
├── UnknownKind                  no handler is registered under that kind
├── DuplicateJob                 a live job has the same unique key
├── JobNotFound                  no job has that id
├── QueueNotFound, WorkerNotFound, ScheduleNotFound, TokenNotFound
├── WorkerEnded                  the worker is gone, so that nothing can be asked of it
├── StateConflict                the job's state does not allow the action
├── LeaseLost                    another attempt owns the job now; nothing was changed
│   └── AssignmentStale          what a runner says of an assignment that is not its own any more
├── AssignmentForeign            a token that is good for one assignment was shown for another one
├── RunnerSuperseded             another registration has the runner's name
├── RunnerHolding                a runner cannot leave while it holds assignments
├── ProtocolUnsupported          a runner speaks no version of the protocol that the server does
├── ArtifactDiffers              another file was kept under that name before
├── LogsIncomplete               a runner's log is not yet all there
├── LogNotFound                  no runner has sent that stream of that attempt
├── LogOffsetWrong               a piece of a log does not go on where the server's copy ends
├── LogRefused                   a piece of a log contradicts what the server has, or comes after its end
├── EndpointNotFound, DeliveryNotFound
├── EndpointTaken                another endpoint for deliveries has that name
├── DeliveryFailed               a delivery was not taken by its endpoint
├── JobFailed                    the awaited job ended as failed
├── JobCancelled                 the awaited job ended as cancelled
├── WaitTimeout                  the awaited job did not end in time
├── StepFailed                   a step failed with an error that cannot be rebuilt by its type
├── ChildFailed                  a child of a run failed or was cancelled
├── SignalTimeout                the signal that a run waited for did not come in time
├── NonDeterministicRun          a run's code asks for another step than was recorded
├── RunEnded                     the run has ended or never was: it takes no signals
├── NotARun                      the job is no execution of a workflow
├── BlobNotFound                 there is no such blob, or its run was pruned
├── StepNotFound                 the run has no finished step of that name
├── DrainEndless                 a drained test queue does not come to an end
├── ChildDied                    the process of a handler ended before its handler did
├── ProgramRefused               the system will not start the program of a job
├── SpecInvalid                  what a runner was given to run is not what was enqueued, or makes no sense
├── DatabaseOutOfReach           a handler on a runner asked for what only a process worker has
├── RunnerBusy                   another process is this runner
├── ServerUnavailable            the Holdfast server cannot be reached
├── ServerRefused                the Holdfast server refused a request for a reason that it names
├── DependencyMissing            an optional package is not installed
├── Poison                       raised by a handler: this job can never succeed
├── TokenTaken                   a valid token has that name
├── TokenInvalid                 a request shows no valid token
├── AccessDenied                 the token's role does not allow the request
├── RequestsTooMany              somebody asks more often than they may
├── OriginRefused                a request comes from a page or by a name that is not the service's own
├── RequestKeyReused             an idempotency key came with another request before
├── DatabaseUnavailable          PostgreSQL cannot be reached
├── DatabaseRefused              PostgreSQL refused a statement for a reason of its own
└── SchemaMismatch
    ├── SchemaMissing            the schema was never migrated
    ├── SchemaTooOld             the database needs `holdfast migrate`
    ├── SchemaTooNew             the database is ahead of this release
    └── SchemaDiffers            the schema was made by another edition of a migration
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class HoldfastError(Exception):
    """The root of all errors that Holdfast raises on purpose."""


class InputInvalid(HoldfastError):
    """What the caller gave cannot be used."""


class ArgumentsInvalid(InputInvalid):
    """The arguments do not fit the handler's signature."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(f"arguments of {kind!r} are wrong: {problem}")
        self.kind, self.problem = kind, problem


class OptionInvalid(InputInvalid):
    """An option is out of range or of the wrong type."""

    def __init__(self, option: str, value: object, expected: str) -> None:
        shown = repr(value)
        if len(shown) > 100:
            shown = shown[:97] + "..."
        super().__init__(f"{option} is {shown}: {expected}")
        self.option, self.value, self.expected = option, value, expected


class ConnectionUnsupported(InputInvalid):
    """A caller's connection is of no kind that the client takes; nothing was sent to it."""

    def __init__(self, connection: object, problem: str) -> None:
        # Only the type is named: how a connection shows itself may hold a password.
        found = f"{type(connection).__module__}.{type(connection).__qualname__}"
        super().__init__(f"cannot enqueue on a {found}: {problem}")
        self.connection_type, self.problem = found, problem


class PayloadTooLarge(InputInvalid):
    """Something to be stored exceeds its size limit."""

    def __init__(self, what: str, *, size: int, limit: int) -> None:
        super().__init__(
            f"{what}: {size:,} bytes where {limit:,} are allowed; store it elsewhere and pass a reference"
        )
        self.what, self.size, self.limit = what, size, limit


class BackoffInvalid(InputInvalid):
    """A retry policy makes no sense."""

    def __init__(self, policy: str, problem: str) -> None:
        super().__init__(f"backoff {policy!r}: {problem}")
        self.policy, self.problem = policy, problem


class ScheduleInvalid(InputInvalid):
    """A schedule's rule, option or time zone makes no sense; *field* names the part of a cron expression."""

    def __init__(self, subject: str, problem: str, *, field: str | None = None) -> None:
        super().__init__(f"{subject}: {problem}")
        self.subject, self.problem, self.field = subject, problem, field


class StepsAtOnce(InputInvalid):
    """Two steps of a run were begun at once in one branch, where nobody can tell which is the first."""

    def __init__(self, branch: str, name: str) -> None:
        super().__init__(
            f"{name!r} was begun in a task of its own, or while branch {branch!r} was busy: "
            "start what is to run at once in `async with run.branches()`"
        )
        self.branch, self.name = branch, name


class BodyInvalid(InputInvalid):
    """The body of a request is not what its route takes."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the body of the request is wrong: {problem}")
        self.problem = problem


class SettingInvalid(InputInvalid):
    """A setting is unknown or has a bad value; *setting* and *source* say which one and who set it."""

    def __init__(self, problem: str, *, setting: str | None = None, source: str | None = None) -> None:
        super().__init__(problem)
        self.setting, self.source = setting, source


class AppNotFound(InputInvalid):
    """There is no application at that address."""

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(f"no application at {address!r}: {problem}")
        self.address, self.problem = address, problem


class LineInvalid(HoldfastError):
    """A line of a stream of jobs is no job; *rest* says what that means for the other lines."""

    def __init__(self, line: int, problem: str, rest: str | None = None) -> None:
        consequence = f"; {rest}" if rest else ""
        super().__init__(f"line {line} is no job: {problem}{consequence}")
        self.line, self.problem = line, problem


class UnknownKind(HoldfastError):
    """No handler is registered under that kind."""

    def __init__(self, kind: str, known: tuple[str, ...] = ()) -> None:
        names = ", ".join(sorted(known)) or "none"
        super().__init__(f"no handler is registered for kind {kind!r}; registered: {names}")
        self.kind = kind


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
        super().__init__(f"queue {name!r} is unknown: see `holdfast queues list`")
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


class AssignmentStale(LeaseLost):
    """An assignment is not the runner's any more; *state*, *now*, *runner* and *outcome* say how things stand.

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
        super().__init__(f"attempt {attempt} of job {job_id} has no stream {stream!r}: see its list of streams")
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


class EndpointNotFound(HoldfastError):
    """No endpoint for deliveries has that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"endpoint {name!r} is unknown: see `holdfast deliveries endpoints`")
        self.name = name


class EndpointTaken(HoldfastError):
    """Another endpoint for deliveries has that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is an endpoint {name!r}: remove it first, or choose another name")
        self.name = name


class DeliveryNotFound(HoldfastError):
    """No delivery has that id, or it was pruned."""

    def __init__(self, delivery_id: int) -> None:
        super().__init__(f"delivery {delivery_id} does not exist (it may have been pruned)")
        self.delivery_id = delivery_id


class DeliveryFailed(HoldfastError):
    """A delivery was not taken by its endpoint; it is tried again."""

    def __init__(self, delivery_id: int, endpoint: str, problem: str) -> None:
        super().__init__(f"delivery {delivery_id} to {endpoint!r} failed: {problem}")
        self.delivery_id, self.endpoint, self.problem = delivery_id, endpoint, problem


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
    """The awaited job did not end in time; it goes on."""

    def __init__(self, job_id: int, seconds: float) -> None:
        super().__init__(f"job {job_id} has not ended within {seconds:g} s; it goes on")
        self.job_id, self.seconds = job_id, seconds


class StepFailed(HoldfastError):
    """A step failed with an error of type *kind*, which is not registered and so cannot be rebuilt."""

    def __init__(self, step: str, kind: str, problem: str) -> None:
        super().__init__(
            f"step {step!r} failed: {kind}: {problem} (to catch it as itself, register it with `app.error`)"
        )
        self.step, self.kind, self.problem = step, kind, problem


class ChildFailed(HoldfastError):
    """A child of a run ended as failed or cancelled; *others* counts its siblings that did so too."""

    def __init__(self, job_id: int, outcome: str, reason: str, *, others: int = 0) -> None:
        more = f" (and {others} more of its siblings)" if others else ""
        super().__init__(f"child {job_id} {outcome}: {reason}{more}")
        self.job_id, self.outcome, self.reason, self.others = job_id, outcome, reason, others


class SignalTimeout(HoldfastError, TimeoutError):
    """The signal that a run waited for did not come in time."""

    def __init__(self, name: str) -> None:
        super().__init__(f"signal {name!r} did not come in time")
        self.name = name


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


class DrainEndless(HoldfastError):
    """A drain ran as many attempts as it may, and jobs are still due."""

    def __init__(self, *, limit: int, kind: str, times: int) -> None:
        super().__init__(
            f"drain ran {limit} attempts and is not done, {times} of them of kind {kind!r}: "
            "does it snooze, retry or enqueue itself for ever? If not, raise limit="
        )
        self.limit, self.kind, self.times = limit, kind, times


class ChildDied(HoldfastError):
    """The child process of a handler ended before its handler did; *end* says how."""

    def __init__(self, end: str) -> None:
        super().__init__(f"the handler's process {end}")
        self.end = end


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
    def is_superseded(self) -> bool:
        """True where another process has registered under the runner's name."""
        return self.facts.get("type") == "superseded"

    @property
    def is_about_token(self) -> bool:
        """True where the server does not know the token, or not any more."""
        return self.status == 401


class DependencyMissing(HoldfastError):
    """An optional package is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed: pip install 'holdfast[{extra}]'")
        self.what, self.extra = what, extra


class Poison(HoldfastError):
    """Raise it in a handler when the job can never succeed: it fails at once, without retries."""


class TokenNotFound(HoldfastError):
    """No token has that id."""

    def __init__(self, token_id: int) -> None:
        super().__init__(f"token {token_id} is unknown: see `holdfast tokens list`")
        self.token_id = token_id


class TokenTaken(HoldfastError):
    """A valid token has that name, which has to tell in the audit log who acted."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a valid token is named {name!r}: revoke it first, or choose another name")
        self.name = name


class TokenInvalid(HoldfastError):
    """A request shows no token, or one that was never made, is revoked or has expired."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}: send `Authorization: Bearer` with a token of `holdfast tokens create`")


class AccessDenied(HoldfastError):
    """The token's role does not allow the request."""

    def __init__(self, role: str, right: str) -> None:
        super().__init__(f"a token of role {role} may not do this: it takes one with the right to {right}")
        self.role, self.right = role, right


class RequestsTooMany(HoldfastError):
    """Somebody asks more often than they may; *retry_after* is in seconds."""

    def __init__(self, what: str, retry_after: float) -> None:
        super().__init__(f"too many {what}: try again in {retry_after:.1f} s")
        self.retry_after = retry_after


class OriginRefused(HoldfastError):
    """A request comes from a page or by a name that is not the service's own."""

    def __init__(self, header: str, value: str) -> None:
        super().__init__(
            f"{header} {value[:100]!r} is not this service: without tokens it answers only what is asked here"
        )
        self.header = header


class RequestKeyReused(HoldfastError):
    """An idempotency key came with another request before; nothing was done."""

    def __init__(self, key: str) -> None:
        super().__init__(f"idempotency key {key!r} came with another request before: take a fresh one")
        self.key = key


class DatabaseUnavailable(HoldfastError):
    """PostgreSQL cannot be reached; nothing is known to have been changed."""


class DatabaseRefused(HoldfastError):
    """PostgreSQL refused a statement for a reason of its own, such as a full disk or missing rights."""


class SchemaMismatch(HoldfastError):
    """The database schema and this release do not fit together."""


class SchemaMissing(SchemaMismatch):
    """The schema was never migrated; *missing* is what PostgreSQL did not find in it."""

    def __init__(self, schema: str, missing: str | None = None) -> None:
        problem = "does not exist in this database" if missing is None else f"is not complete ({missing})"
        super().__init__(f"schema {schema!r} {problem}: run `holdfast migrate`")
        self.schema, self.missing = schema, missing


class SchemaTooOld(SchemaMismatch):
    """The database schema is older than this release needs."""

    def __init__(self, schema: str, *, found: int, needed: int) -> None:
        super().__init__(
            f"schema {schema!r} is at {found}, this release needs {needed}: run `holdfast migrate`"
        )
        self.schema, self.found, self.needed = schema, found, needed


class SchemaTooNew(SchemaMismatch):
    """The database schema was migrated by a newer release."""

    def __init__(self, schema: str, *, found: int, known: int) -> None:
        super().__init__(
            f"schema {schema!r} is at {found}, this release knows {known}: upgrade the holdfast package here"
        )
        self.schema, self.found, self.known = schema, found, known


class SchemaDiffers(SchemaMismatch):
    """The schema was made by another edition of a migration than the one in this release."""

    def __init__(self, schema: str, migration: int) -> None:
        super().__init__(
            f"schema {schema!r} was made by another edition of migration {migration}: use the release that "
            "made it, or set another schema (HOLDFAST_SCHEMA) and run `holdfast migrate`"
        )
        self.schema, self.migration = schema, migration
