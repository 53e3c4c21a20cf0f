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
├── ArtifactsTooMany             an attempt has left as many files, or bytes of them, as it may
├── ArtifactNotFound             an attempt has left no file of that name
├── ArtifactDamaged              what was fetched of an artifact is not what its runner left
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
├── StepFailed                   a step failed with an error of an unknown type, or its answer ended it
├── ChildFailed                  a child of a run failed or was cancelled
├── ChildrenGone                 the ends of children that a run waits for are kept no longer
├── SignalTimeout                the signal that a run waited for did not come in time
├── CutShort                     a timeout around a step or a wait of a run has ended it
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
├── FolderUnwritable             a runner cannot keep anything in its folder
├── ServerUnavailable            the Holdfast server cannot be reached
├── ServerRefused                the Holdfast server refused a request for a reason that it names
├── DependencyMissing            an optional package is not installed
├── Poison                       raised by a handler: this job can never succeed
├── TokenTaken                   a valid token has that name
├── TokenInvalid                 a request shows no valid token
├── AccessDenied                 the token's role does not allow the request
├── RequestsTooMany              somebody asks more often than they may
├── OriginRefused                a request without a token comes from elsewhere, or through a proxy
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

from holdfast.errors.database import (
    DatabaseRefused,
    DatabaseUnavailable,
    SchemaDiffers,
    SchemaMismatch,
    SchemaMissing,
    SchemaTooNew,
    SchemaTooOld,
)
from holdfast.errors.handlers import ChildDied, DependencyMissing, DrainEndless, Poison
from holdfast.errors.inputs import (
    AppNotFound,
    ArgumentsInvalid,
    BackoffInvalid,
    BodyInvalid,
    ConnectionUnsupported,
    InputInvalid,
    LineInvalid,
    OptionInvalid,
    PayloadTooLarge,
    ScheduleInvalid,
    SettingInvalid,
    StepsAtOnce,
    UnknownKind,
)
from holdfast.errors.jobs import (
    DuplicateJob,
    JobCancelled,
    JobFailed,
    JobNotFound,
    LeaseLost,
    QueueNotFound,
    ScheduleNotFound,
    StateConflict,
    WaitTimeout,
    WorkerEnded,
    WorkerNotFound,
)
from holdfast.errors.root import HoldfastError
from holdfast.errors.runners import (
    ArtifactDamaged,
    ArtifactDiffers,
    ArtifactNotFound,
    ArtifactsTooMany,
    AssignmentForeign,
    AssignmentStale,
    DatabaseOutOfReach,
    FolderUnwritable,
    LogNotFound,
    LogOffsetWrong,
    LogRefused,
    LogsIncomplete,
    ProgramRefused,
    ProtocolUnsupported,
    RunnerBusy,
    RunnerHolding,
    RunnerSuperseded,
    ServerRefused,
    ServerUnavailable,
    SpecInvalid,
)
from holdfast.errors.runs import (
    BlobNotFound,
    ChildFailed,
    ChildrenGone,
    CutShort,
    NonDeterministicRun,
    NotARun,
    RunEnded,
    SignalTimeout,
    StepFailed,
    StepNotFound,
)
from holdfast.errors.service import (
    AccessDenied,
    DeliveryFailed,
    DeliveryNotFound,
    EndpointNotFound,
    EndpointTaken,
    OriginRefused,
    RequestKeyReused,
    RequestsTooMany,
    TokenInvalid,
    TokenNotFound,
    TokenTaken,
)

__all__ = [
    "AccessDenied",
    "AppNotFound",
    "ArgumentsInvalid",
    "ArtifactDamaged",
    "ArtifactDiffers",
    "ArtifactNotFound",
    "ArtifactsTooMany",
    "AssignmentForeign",
    "AssignmentStale",
    "BackoffInvalid",
    "BlobNotFound",
    "BodyInvalid",
    "ChildDied",
    "ChildFailed",
    "ChildrenGone",
    "ConnectionUnsupported",
    "CutShort",
    "DatabaseOutOfReach",
    "DatabaseRefused",
    "DatabaseUnavailable",
    "DeliveryFailed",
    "DeliveryNotFound",
    "DependencyMissing",
    "DrainEndless",
    "DuplicateJob",
    "EndpointNotFound",
    "EndpointTaken",
    "FolderUnwritable",
    "HoldfastError",
    "InputInvalid",
    "JobCancelled",
    "JobFailed",
    "JobNotFound",
    "LeaseLost",
    "LineInvalid",
    "LogNotFound",
    "LogOffsetWrong",
    "LogRefused",
    "LogsIncomplete",
    "NonDeterministicRun",
    "NotARun",
    "OptionInvalid",
    "OriginRefused",
    "PayloadTooLarge",
    "Poison",
    "ProgramRefused",
    "ProtocolUnsupported",
    "QueueNotFound",
    "RequestKeyReused",
    "RequestsTooMany",
    "RunEnded",
    "RunnerBusy",
    "RunnerHolding",
    "RunnerSuperseded",
    "ScheduleInvalid",
    "ScheduleNotFound",
    "SchemaDiffers",
    "SchemaMismatch",
    "SchemaMissing",
    "SchemaTooNew",
    "SchemaTooOld",
    "ServerRefused",
    "ServerUnavailable",
    "SettingInvalid",
    "SignalTimeout",
    "SpecInvalid",
    "StateConflict",
    "StepFailed",
    "StepNotFound",
    "StepsAtOnce",
    "TokenInvalid",
    "TokenNotFound",
    "TokenTaken",
    "UnknownKind",
    "WaitTimeout",
    "WorkerEnded",
    "WorkerNotFound",
]

# Their home for everybody else: runs record an error by this name, and a move between the files here must not
# change it.
for _name in __all__:
    globals()[_name].__module__ = __name__
