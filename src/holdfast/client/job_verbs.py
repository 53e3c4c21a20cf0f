"""What can be done to jobs in terms of smaller acts, be they done on the database or over HTTP."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from holdfast.client.log_reader import LogPage
from holdfast.model.job import JobSummary
from holdfast.model.log import BEGINNING, LogMark
from holdfast.model.selection import JobFilter
from holdfast.rules.intervention import Intervention
from holdfast.store.logs import LogLine

EVERY_JOB = JobFilter()
LOOK_EVERY = 0.5

# Called after each batch with how many jobs were looked at and changed so far.
Progress = Callable[["Swept"], None]


@dataclass(frozen=True, slots=True)
class Swept:
    """What an act on many jobs came to; those whose state had changed meanwhile are *passed_over*."""

    changed: int = 0
    passed_over: int = 0

    @property
    def seen(self) -> int:
        """How many jobs were looked at."""
        return self.changed + self.passed_over

    def __add__(self, other: Swept) -> Swept:
        return Swept(self.changed + other.changed, self.passed_over + other.passed_over)


@dataclass(frozen=True, slots=True)
class Stroke:
    """One batch of a sweep: what it came to, and below which id the next one begins, None after the last."""

    swept: Swept
    before: int | None


class JobVerbs(ABC):
    """Follows logs and sweeps over many jobs, by pages and strokes."""

    @abstractmethod
    async def find(
        self, chosen: JobFilter = EVERY_JOB, *, limit: int = 50, before: int | None = None
    ) -> Sequence[JobSummary]:
        """Return up to *limit* jobs with ids below *before*, newest first.

        The id of the last one is *before* of the next page.  Raises `DatabaseRefused` after 15 s: a narrower
        filter is needed then.
        """

    @abstractmethod
    async def log_page(
        self, job_id: int, *, attempt: int | None = None, after: LogMark = BEGINNING
    ) -> LogPage:
        """Return the next lines after a mark, of one attempt or of all; raises `JobNotFound`.

        A line of a runner that has no end yet is kept for a later page, until the job has ended.
        """

    @abstractmethod
    async def stroke(
        self, action: Intervention, chosen: JobFilter, reason: str | None, *, before: int | None
    ) -> Stroke:
        """Do *action* to the 500 newest jobs with ids below *before* that fit, and still do."""

    async def logs(
        self,
        job_id: int,
        *,
        attempt: int | None = None,
        after: LogMark = BEGINNING,
        follow: bool = False,
    ) -> AsyncIterator[LogLine]:
        """Give what a job has logged after a mark, of one attempt or of all.

        With *follow* it goes on until the job has ended.  Raises `JobNotFound`.
        """
        while True:
            page = await self.log_page(job_id, attempt=attempt, after=after)
            for line in page.lines:
                yield line
            if not page.lines and page.mark == after:
                if page.ended or not follow:
                    return
                await asyncio.sleep(LOOK_EVERY)
            after = page.mark

    async def cancel_many(
        self, chosen: JobFilter, reason: str | None = None, *, progress: Progress | None = None
    ) -> Swept:
        """Cancel every job that fits now, newest first, in batches of 500."""
        return await self._sweep(Intervention.CANCEL, chosen, reason, progress)

    async def discard_many(
        self, chosen: JobFilter, reason: str | None = None, *, progress: Progress | None = None
    ) -> Swept:
        """Discard every job that fits now, newest first, in batches of 500."""
        return await self._sweep(Intervention.DISCARD, chosen, reason, progress)

    async def retry_many(
        self, chosen: JobFilter, reason: str | None = None, *, progress: Progress | None = None
    ) -> Swept:
        """Retry every job that fits now (failed ones if no state is given), newest first, in batches of 500.

        Where several jobs want one unique key, one of them gets it and the others are passed over.
        """
        return await self._sweep(Intervention.RETRY, chosen, reason, progress)

    async def _sweep(
        self, action: Intervention, chosen: JobFilter, reason: str | None, progress: Progress | None
    ) -> Swept:
        """Make one stroke after another, from the newest job down.

        A job is met once: what is enqueued meanwhile has a higher id.
        """
        swept = Swept()
        stroke = await self.stroke(action, chosen, reason, before=None)
        while stroke.before is not None:
            swept += stroke.swept
            if progress is not None:
                progress(swept)
            stroke = await self.stroke(action, chosen, reason, before=stroke.before)
        return swept
