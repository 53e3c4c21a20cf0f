"""Holdfast: a control plane for work, with PostgreSQL as its only moving part.

What is listed in ``__all__`` is the public face; everything else may change.
"""

__version__ = "0.1.0"

from holdfast.app.handler import Handler, JobRequest
from holdfast.app.job import Job
from holdfast.app.registry import App
from holdfast.client.asynchronous import Client
from holdfast.errors import (
    ArgumentsInvalid,
    DatabaseUnavailable,
    DuplicateJob,
    HoldfastError,
    JobCancelled,
    JobFailed,
    LeaseLost,
    Poison,
    WaitTimeout,
)
from holdfast.model.job import JobHandle, JobState
from holdfast.model.outcome import Cancel, Retry, Snooze
from holdfast.rules.backoff import Constant, Custom, Exponential, Linear

__all__ = [
    "App",
    "ArgumentsInvalid",
    "Cancel",
    "Client",
    "Constant",
    "Custom",
    "DatabaseUnavailable",
    "DuplicateJob",
    "Exponential",
    "Handler",
    "HoldfastError",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobHandle",
    "JobRequest",
    "JobState",
    "LeaseLost",
    "Linear",
    "Poison",
    "Retry",
    "Snooze",
    "WaitTimeout",
]
