"""Holdfast: a control plane for work, with PostgreSQL as its only moving part.

What is listed in ``__all__`` is the public face; everything else may change.
"""

__version__ = "0.1.0"

from holdfast.app.handler import Handler, JobRequest
from holdfast.app.job import Job
from holdfast.app.registry import App
from holdfast.client.asynchronous import Client
from holdfast.client.keywords import EnqueueOptions
from holdfast.client.migration import migrate
from holdfast.client.synchronous import SyncClient
from holdfast.errors import (
    ArgumentsInvalid,
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
    OptionInvalid,
    PayloadTooLarge,
    Poison,
    SchemaMismatch,
    StateConflict,
    UnknownKind,
    WaitTimeout,
)
from holdfast.model.job import AttemptRecord, Enqueued, JobHandle, JobRecord, JobState, UniquePolicy
from holdfast.model.outcome import Cancel, Retry, Snooze
from holdfast.rules.backoff import Constant, Custom, Exponential, Linear

__all__ = [
    "App",
    "ArgumentsInvalid",
    "AttemptRecord",
    "Cancel",
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
    "OptionInvalid",
    "PayloadTooLarge",
    "Poison",
    "Retry",
    "SchemaMismatch",
    "Snooze",
    "StateConflict",
    "SyncClient",
    "UniquePolicy",
    "UnknownKind",
    "WaitTimeout",
    "migrate",
]
