"""What is asked of workers over HTTP."""

from __future__ import annotations

import msgspec

from holdfast.model.audit import AuditRecord
from holdfast.model.job import JobSummary
from holdfast.model.worker import WorkerRecord


class WorkerStory(msgspec.Struct, frozen=True):
    """A worker with the jobs that it *holds* and what operators did to it."""

    worker: WorkerRecord
    holds: list[JobSummary]
    audit: list[AuditRecord]


class Draining(msgspec.Struct, frozen=True):
    """The worker takes nothing more."""

    id: int


class Resumed(msgspec.Struct, frozen=True):
    """The runner takes jobs again."""

    id: int
