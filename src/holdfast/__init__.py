"""Holdfast: a control plane for work, with PostgreSQL as its only moving part.

What is listed in ``__all__`` is the public face; everything else may change.
"""

__version__ = "0.1.0"

from holdfast.app.command import command
from holdfast.app.handler import Handler, JobRequest
from holdfast.app.job import Job
from holdfast.app.registry import App
from holdfast.app.workflow import Workflow
from holdfast.client.asynchronous import Client
from holdfast.client.keywords import EnqueueOptions
from holdfast.client.migration import migrate
from holdfast.client.synchronous import SyncClient
from holdfast.errors import (
    ArgumentsInvalid,
    BlobNotFound,
    ChildFailed,
    ConnectionUnsupported,
    DatabaseRefused,
    DatabaseUnavailable,
    DuplicateJob,
    HoldfastError,
    InputInvalid,
    JobCancelled,
    JobFailed,
    JobNotFound,
    LeaseLost,
    NonDeterministicRun,
    NotARun,
    OptionInvalid,
    PayloadTooLarge,
    Poison,
    RunEnded,
    SchemaMismatch,
    SignalTimeout,
    StateConflict,
    StepFailed,
    StepNotFound,
    StepsAtOnce,
    UnknownKind,
    WaitTimeout,
)
from holdfast.model.blob import Blob
from holdfast.model.job import AttemptRecord, Enqueued, JobHandle, JobRecord, JobState, UniquePolicy
from holdfast.model.outcome import Cancel, Retry, Snooze
from holdfast.model.run import RunFilter, RunNode, RunSummary
from holdfast.model.step import ActivityRecord, StepRecord
from holdfast.rules.backoff import Constant, Custom, Exponential, Linear
from holdfast.workflow.run import Run

__all__ = [
    "ActivityRecord",
    "App",
    "ArgumentsInvalid",
    "AttemptRecord",
    "Blob",
    "BlobNotFound",
    "Cancel",
    "ChildFailed",
    "Client",
    "ConnectionUnsupported",
    "Constant",
    "Custom",
    "DatabaseRefused",
    "DatabaseUnavailable",
    "DuplicateJob",
    "EnqueueOptions",
    "Enqueued",
    "Exponential",
    "Handler",
    "HoldfastError",
    "InputInvalid",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobHandle",
    "JobNotFound",
    "JobRecord",
    "JobRequest",
    "JobState",
    "LeaseLost",
    "Linear",
    "NonDeterministicRun",
    "NotARun",
    "OptionInvalid",
    "PayloadTooLarge",
    "Poison",
    "Retry",
    "Run",
    "RunEnded",
    "RunFilter",
    "RunNode",
    "RunSummary",
    "SchemaMismatch",
    "SignalTimeout",
    "Snooze",
    "StateConflict",
    "StepFailed",
    "StepNotFound",
    "StepRecord",
    "StepsAtOnce",
    "SyncClient",
    "UniquePolicy",
    "UnknownKind",
    "WaitTimeout",
    "Workflow",
    "command",
    "migrate",
]
