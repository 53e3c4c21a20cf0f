"""What an operator sees of jobs and does to them, one by one or many by a filter."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from holdfast.client.answer import LOOKS, check_key, check_refusal, there
from holdfast.client.job_verbs import EVERY_JOB, JobVerbs, Stroke, Swept
from holdfast.client.log_reader import LogPage, LogReader
from holdfast.errors import ArtifactNotFound, JobNotFound
from holdfast.model.assignment import ArtifactRecord, RunnerStory
from holdfast.model.audit import Mandate
from holdfast.model.job import JobRecord, JobState, JobSummary
from holdfast.model.log import BEGINNING, LogMark
from holdfast.model.selection import JobFilter
from holdfast.rules.intervention import Intervention, meant_states
from holdfast.rules.waiting import MOST_COUNTED, why_waiting
from holdfast.store import artifacts, bundles, interventions, jobs, overview, placements
from holdfast.store.attempts import Fence
from holdfast.store.database import Database
from holdfast.store.statement import Statement

TALLY_TIMEOUT = "50s"
BATCH = 500

Found = TypeVar("Found", bound=Container[int])


class JobOperator(JobVerbs):
    """Lists, shows, cancels, retries and discards jobs in the name of *actor*."""

    def __init__(self, database: Database, actor: str) -> None:
        self._database, self._actor = database, actor

    async def find(
        self, chosen: JobFilter = EVERY_JOB, *, limit: int = 50, before: int | None = None
    ) -> Sequence[JobSummary]:
        """Return up to *limit* jobs with ids below *before*, newest first.

        The id of the last one is *before* of the next page.  Raises `DatabaseRefused` after 15 s: a narrower
        filter is needed then.
        """
        async with self._database.transaction() as connection:
            await self._database.run(overview.plan_freely(overview.LISTING_TIMEOUT), connection)
            return await self._database.run(
                overview.list_jobs(chosen, before=before, limit=limit), connection
            )

    async def count(self, chosen: JobFilter) -> int:
        """Count the jobs that fit, one by one; raises `DatabaseRefused` after 50 s."""
        async with self._database.transaction() as connection:
            await self._database.run(overview.plan_freely(TALLY_TIMEOUT), connection)
            return await self._database.run(overview.tally_jobs(chosen), connection)

    async def show(self, job_id: int) -> JobRecord:
        """Return a job with its arguments, its end and its whole timeline; raises `JobNotFound`."""
        for _ in range(LOOKS):
            record = await self._database.run(overview.job_record(job_id))
            if record is not None:
                return record
        raise JobNotFound(job_id)

    async def why(self, job_id: int) -> str | None:
        """Say in one sentence what a live job waits for; None where it runs or has ended."""
        standings = await self._database.run(overview.job_standings([job_id], MOST_COUNTED))
        return why_waiting(standings[job_id]) if job_id in standings else None

    async def on_runners(self, job_id: int) -> RunnerStory | None:
        """Return what runners had to do with a job; None where it is not for runners."""
        return await self._database.run(placements.runner_story(job_id))

    async def artifacts(self, job_id: int) -> Sequence[ArtifactRecord]:
        """Return the files that runners left of a job, later attempts last; raises `JobNotFound`."""
        return there(await self._database.run(artifacts.list_artifacts(job_id)), JobNotFound(job_id))

    async def artifact(self, job_id: int, attempt: int, name: str) -> bytes:
        """Return the bytes of a file that an attempt left; raises `ArtifactNotFound`."""
        found = await self._database.run(artifacts.read_artifact(Fence(job_id, attempt), name))
        return there(found, ArtifactNotFound(job_id, attempt, name))

    async def log_page(
        self, job_id: int, *, attempt: int | None = None, after: LogMark = BEGINNING
    ) -> LogPage:
        """Return the next lines after a mark, of one attempt or of all; raises `JobNotFound`.

        A line of a runner that has no end yet is kept for a later page, until the job has ended.
        """
        return await LogReader(self._database).page(job_id, after, attempt=attempt)

    async def last_logs(self, job_id: int, *, attempt: int | None = None, limit: int) -> LogPage:
        """Return the last lines of a job in order, of one attempt or of all; raises `JobNotFound`."""
        return await LogReader(self._database).last(job_id, limit, attempt=attempt)

    async def cancel(self, job_id: int, reason: str | None = None) -> bool:
        """Cancel a job: True if it has ended, False if its worker was asked to stop it.

        Raises `StateConflict` for a job that has ended, and `JobNotFound`.
        """
        statement = interventions.cancel_jobs([job_id], Mandate(self._actor, reason))
        return (await self._act(job_id, Intervention.CANCEL, statement))[job_id]

    async def discard(self, job_id: int, reason: str | None = None) -> None:
        """End a job as failed that nobody holds; raises `StateConflict`, `JobNotFound`."""
        statement = interventions.discard_jobs([job_id], Mandate(self._actor, reason))
        await self._act(job_id, Intervention.DISCARD, statement)

    async def retry(self, job_id: int, reason: str | None = None) -> None:
        """Take a failed or cancelled job up again, or run a scheduled one now.

        It keeps its id and its history and has all its attempts to spend.  Raises `StateConflict`,
        `JobNotFound`, and `DuplicateJob` where another live job holds its unique key.
        """
        statement = interventions.retry_jobs([job_id], Mandate(self._actor, reason))
        check_key((await self._act(job_id, Intervention.RETRY, statement))[job_id])

    async def stroke(
        self, action: Intervention, chosen: JobFilter, reason: str | None, *, before: int | None
    ) -> Stroke:
        """Do *action* to the 500 newest jobs with ids below *before* that fit, and still do."""
        wanted = meant(action, chosen)
        page = await self.find(wanted, limit=BATCH, before=before)
        if not page:
            return Stroke(Swept(), None)
        found = [job.id for job in page]
        changed = await self._act_on_all(found, action, Mandate(self._actor, reason), wanted.states)
        return Stroke(Swept(changed, len(page) - changed), page[-1].id)

    async def _act_on_all(
        self, job_ids: list[int], action: Intervention, mandate: Mandate, states: Iterable[JobState]
    ) -> int:
        """Act on those of the jobs whose state allows it; answers how many of them there were.

        They have to be in *states* still.  Children that follow their parents are not counted.
        """
        if action is Intervention.RETRY:
            holders = await self._database.run(interventions.retry_jobs(job_ids, mandate, states))
            changed = {job_id for job_id, holder in holders.items() if holder is None}
        elif action is Intervention.CANCEL:
            changed = {*await self._database.run(interventions.cancel_jobs(job_ids, mandate, states))}
            missed = [job_id for job_id in job_ids if job_id not in changed]
            if missed:
                # They may stand in bundles, or have come out of them since.
                await self._database.run_read_committed(bundles.untie_jobs(missed))
                changed |= {*await self._database.run(interventions.cancel_jobs(missed, mandate, states))}
        else:
            changed = {*await self._database.run(interventions.discard_jobs(job_ids, mandate, states))}
        return len(changed.intersection(job_ids))

    async def _act(self, job_id: int, action: Intervention, statement: Statement[Found]) -> Found:
        """Run *statement*, which answers with the job where it could act on it."""
        for look in range(LOOKS):
            answer = await self._database.run(statement)
            if job_id in answer:
                return answer
            end = await self._database.run(jobs.job_end(job_id))
            check_refusal(job_id, action, end, last=look == LOOKS - 1)
            if action is Intervention.CANCEL:
                # It may stand in a bundle.
                await self._database.run_read_committed(bundles.untie_jobs([job_id]))
        raise JobNotFound(job_id)


def meant(action: Intervention, chosen: JobFilter) -> JobFilter:
    """Return the filter with the states in which *action* is done; raises `OptionInvalid` for a wrong one."""
    return replace(chosen, states=meant_states(action, chosen.states))
