"""Holdfast: a control plane for work, with PostgreSQL as its only moving part.

What is listed in ``__all__`` is the public face; everything else may change.
"""

__version__ = "0.1.0"

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.app.command import command
    from holdfast.app.handler import Handler, JobRequest
    from holdfast.app.job import Job
    from holdfast.app.keywords import EnqueueOptions
    from holdfast.app.registry import App
    from holdfast.app.workflow import Workflow
    from holdfast.client.asynchronous import Client
    from holdfast.client.migration import migrate
    from holdfast.client.synchronous import SyncClient
    from holdfast.errors import (
        ArgumentsInvalid,
        ArtifactNotFound,
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
    from holdfast.model.assignment import ArtifactRecord
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
    "ArtifactNotFound",
    "ArtifactRecord",
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

# Where each name is at home.  It is imported when somebody asks for it: a runner needs nothing that speaks to
# a database, nor the time and the memory that this takes.
_HOMES = {
    "holdfast.app.command": ("command",),
    "holdfast.app.handler": ("Handler", "JobRequest"),
    "holdfast.app.job": ("Job",),
    "holdfast.app.registry": ("App",),
    "holdfast.app.workflow": ("Workflow",),
    "holdfast.client.asynchronous": ("Client",),
    "holdfast.app.keywords": ("EnqueueOptions",),
    "holdfast.client.migration": ("migrate",),
    "holdfast.client.synchronous": ("SyncClient",),
    "holdfast.errors": (
        "ArgumentsInvalid",
        "ArtifactNotFound",
        "BlobNotFound",
        "ChildFailed",
        "ConnectionUnsupported",
        "DatabaseRefused",
        "DatabaseUnavailable",
        "DuplicateJob",
        "HoldfastError",
        "InputInvalid",
        "JobCancelled",
        "JobFailed",
        "JobNotFound",
        "LeaseLost",
        "NonDeterministicRun",
        "NotARun",
        "OptionInvalid",
        "PayloadTooLarge",
        "Poison",
        "RunEnded",
        "SchemaMismatch",
        "SignalTimeout",
        "StateConflict",
        "StepFailed",
        "StepNotFound",
        "StepsAtOnce",
        "UnknownKind",
        "WaitTimeout",
    ),
    "holdfast.model.assignment": ("ArtifactRecord",),
    "holdfast.model.blob": ("Blob",),
    "holdfast.model.job": ("AttemptRecord", "Enqueued", "JobHandle", "JobRecord", "JobState", "UniquePolicy"),
    "holdfast.model.outcome": ("Cancel", "Retry", "Snooze"),
    "holdfast.model.run": ("RunFilter", "RunNode", "RunSummary"),
    "holdfast.model.step": ("ActivityRecord", "StepRecord"),
    "holdfast.rules.backoff": ("Constant", "Custom", "Exponential", "Linear"),
    "holdfast.workflow.run": ("Run",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name where it is used for the first time."""
    if name == "errors":
        return import_module("holdfast.errors")
    if name not in _HOME_OF:
        msg = f"module 'holdfast' has no attribute {name!r}"
        raise AttributeError(msg)
    found = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "errors"})
