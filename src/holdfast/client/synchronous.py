# Written by scripts/sync_client.py from asynchronous.py: change that one and run `make generate`.
"""The client for sync applications."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from datetime import timedelta
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from holdfast.app.handler import JobRequest
from holdfast.app.keywords import EnqueueOptions
from holdfast.app.options import chosen, resolved, resolved_each, seconds_from, several
from holdfast.app.signals import signal_statement
from holdfast.client.answer import (
    LOOKS,
    MOST_NAMED,
    PAUSED,
    RESUMED,
    answer,
    check_key,
    check_refusal,
    check_run_refusal,
    checked_run,
    fork_refusal,
    there,
)
from holdfast.client.trees import grown
from holdfast.errors import ArtifactNotFound, DatabaseUnavailable, JobNotFound, WaitTimeout
from holdfast.model.assignment import ArtifactRecord
from holdfast.model.audit import Mandate
from holdfast.model.job import JobHandle, JobRecord, NewJob
from holdfast.model.run import EVERY_RUN, RunFilter, RunNode, RunSummary, UnreadSignal
from holdfast.model.step import MAIN, ActivityRecord, StepRecord
from holdfast.rules.intervention import Intervention
from holdfast.rules.seeds import first_seed
from holdfast.rules.waiting import MOST_COUNTED
from holdfast.store import (
    artifacts,
    bulk,
    bundles,
    interventions,
    jobs,
    overview,
    run_overview,
    runs,
    signals,
    steps,
)
from holdfast.store.attempts import Fence
from holdfast.store.enqueuer import SyncEnqueuer
from holdfast.store.foreign import run_foreign_sync
from holdfast.store.incoming import COPY_FROM, Incoming, NotRead
from holdfast.store.run_overview import RunLook
from holdfast.store.runs import ForkPoint
from holdfast.store.statement import Statement
from holdfast.store.sync_database import DatabaseConfig, SyncDatabase

Verdict = TypeVar("Verdict")

FIRST_LOOK, LAST_LOOK = 0.005, 0.25
# Who acts where a program does, as the audit log names it.
ACTOR = "application"


class SyncClient:
    """Enqueues jobs and waits for them.  Use it as ``with SyncClient(dsn) as client``.

    *schema* chooses the environment; *pgbouncer* is for a pooler, in session or transaction mode.
    """

    def __init__(
        self, dsn: str, *, schema: str = "holdfast", pool_size: int = 5, pgbouncer: bool = False
    ) -> None:
        self._database = SyncDatabase(
            DatabaseConfig(
                dsn=dsn,
                schema=schema,
                pool_size=pool_size,
                pgbouncer=pgbouncer,
                application_name="holdfast client",
            )
        )
        self._enqueuer = SyncEnqueuer(self._database)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Connect; raises `DatabaseUnavailable`."""
        self._database.open()

    def close(self) -> None:
        """Disconnect."""
        self._database.close()

    def enqueue(
        self, request: JobRequest, *, connection: Any = None, **options: Unpack[EnqueueOptions]
    ) -> JobHandle:
        """Enqueue one job; it exists once the transaction commits.

        *connection* is the caller's own, of psycopg, SQLAlchemy or Django: then the job is part
        of its transaction.  Raises `OptionInvalid`, `DuplicateJob`, `DatabaseUnavailable`.
        """
        job = resolved(request, chosen(options))
        if connection is None:
            return self._enqueuer.enqueue(job)
        [handle] = self._put([job], connection)
        return handle

    def enqueue_many(
        self, requests: Iterable[JobRequest], *, connection: Any = None, **options: Unpack[EnqueueOptions]
    ) -> list[JobHandle]:
        """Enqueue many jobs, all or none; answers their handles in order.

        Their ids grow in that order, of a thousand and more only among those of one queue and priority.
        The options hold for all of them, but for those that `JobRequest.with_options` gave to one.  What can
        be read only once, such as a generator, is read while the database takes in what it gave before.
        """
        incoming = Incoming(resolved_each(several(requests), chosen(options)))
        # What is there as a whole is checked as a whole before anything is sent.
        is_whole = connection is not None or isinstance(requests, Sized)
        incoming.read(None if is_whole else COPY_FROM)
        while connection is None and incoming.pays:
            try:
                with self._database.transaction() as own:
                    return bulk.copy_jobs_sync(own, self._database.schema, incoming)
            except NotRead:
                incoming.read()
            except DatabaseUnavailable:
                # The driver's patience may have ended while the caller's own generator kept all waiting.
                if not incoming.is_slow:
                    raise
                incoming.read()
        rows = incoming.read()
        return self._put(rows, connection) if rows else []

    def _put(self, rows: list[NewJob], connection: Any) -> list[JobHandle]:
        statement = jobs.enqueue_jobs(rows)
        if connection is None:
            return self._database.run(statement)
        return run_foreign_sync(connection, statement, self._database.schema)

    def wait(self, job_id: int, *, timeout: timedelta | float | None = None) -> Any:
        """Wait for a job and return its result.

        Raises `JobFailed`, `JobCancelled`, `JobNotFound`, and `WaitTimeout` after *timeout* seconds.
        """
        patience = None if timeout is None else seconds_from("timeout", timeout)
        began, pause = monotonic(), FIRST_LOOK
        while True:
            end = self._database.run(jobs.job_end(job_id))
            if end is None:
                raise JobNotFound(job_id)
            if end.state.is_final:
                return answer(job_id, end)
            if patience is not None:
                left = began + patience - monotonic()
                if left <= 0:
                    raise WaitTimeout(job_id, patience, state=end.state)
                pause = min(pause, left)
            sleep(pause)
            pause = min(LAST_LOOK, pause * 1.5)

    def job(self, job_id: int) -> JobRecord:
        """Return everything about a job: arguments, state, result, every attempt; raises `JobNotFound`."""
        for _ in range(LOOKS):
            record = self._database.run(overview.job_record(job_id))
            if record is not None:
                return record
        raise JobNotFound(job_id)

    def artifacts(self, job_id: int) -> list[ArtifactRecord]:
        """Return the files that runners left of a job, later attempts last; raises `JobNotFound`."""
        return there(self._database.run(artifacts.list_artifacts(job_id)), JobNotFound(job_id))

    def artifact(self, job_id: int, attempt: int, name: str) -> bytes:
        """Return the bytes of a file that an attempt left; raises `ArtifactNotFound`."""
        found = self._database.run(artifacts.read_artifact(Fence(job_id, attempt), name))
        return there(found, ArtifactNotFound(job_id, attempt, name))

    def cancel(self, job_id: int, *, reason: str | None = None) -> bool:
        """Cancel a job: True if it has ended, False if its worker was asked to stop it.

        Raises `StateConflict` for a job that has ended, and `JobNotFound`.
        """
        statement = interventions.cancel_jobs([job_id], Mandate(ACTOR, reason))
        verdicts = self._act(job_id, Intervention.CANCEL, statement)
        return verdicts[job_id]

    def retry(self, job_id: int, *, reason: str | None = None) -> None:
        """Take a failed or cancelled job up again under its id, or run a scheduled one now.

        Raises `StateConflict`, `JobNotFound`, and `DuplicateJob` where a live job holds its unique key.
        """
        statement = interventions.retry_jobs([job_id], Mandate(ACTOR, reason))
        verdicts = self._act(job_id, Intervention.RETRY, statement)
        check_key(verdicts[job_id])

    def signal(self, run_id: int, name: str, payload: Any = None, *, key: str | None = None) -> int:
        """Send a signal to a run, before or while it waits for it; answers the signal's id.

        A second one with the same *key* is the first one.  Raises `RunEnded`, `NotARun`, `PayloadTooLarge`.
        """
        return self._database.run(signal_statement(run_id, name, payload, key))

    def signals(self, run_id: int) -> list[UnreadSignal]:
        """Return the signals that a run has not read yet, oldest first; raises `JobNotFound`, `NotARun`."""
        self._run_look(run_id)
        return self._database.run(signals.list_signals(run_id))

    def pause(self, run_id: int, *, reason: str | None = None) -> None:
        """Pause a run, and its children that follow it, at their next step.

        Raises `StateConflict` where it has ended, `NotARun` and `JobNotFound`.
        """
        self._act_on_run(run_id, PAUSED, runs.pause_runs([run_id], Mandate(ACTOR, reason)))

    def resume(self, run_id: int, *, reason: str | None = None) -> None:
        """Let a paused run go on, or one whose code did not fit its record.

        Raises `StateConflict` where it is not paused, `NotARun` and `JobNotFound`.  A failed one is taken
        up from its failed step by `retry`.
        """
        self._act_on_run(run_id, RESUMED, runs.resume_runs([run_id], Mandate(ACTOR, reason)))

    def fork(
        self,
        run_id: int,
        *,
        at: str,
        branch: str = MAIN,
        place: int | None = None,
        reason: str | None = None,
    ) -> JobHandle:
        """Enqueue a run that remembers what another one had recorded up to the end of its step *at*.

        Of several steps of that name in *branch* it is the last one, or that at *place*.  Raises
        `StepNotFound`, which names the steps that have finished, `NotARun` and `JobNotFound`.
        """
        point = ForkPoint(branch, at, place)
        source = self.job(run_id)
        seed = first_seed(run_id, source.created_at)
        forked = self._database.run(runs.fork_run(run_id, seed, point, Mandate(ACTOR, reason)))
        if forked is None:
            finished = self._database.run(steps.list_steps(run_id, None, MOST_NAMED))
            raise fork_refusal(run_id, point, self._run_look(run_id), finished)
        return JobHandle(forked)

    def runs(
        self, chosen: RunFilter = EVERY_RUN, *, limit: int = 50, before: int | None = None
    ) -> list[RunSummary]:
        """Return up to *limit* runs with ids below *before*, newest first, and what each one waits for.

        Raises `DatabaseRefused` after 15 s: a narrower filter is needed then.
        """
        with self._database.transaction() as connection:
            self._database.run(overview.plan_freely(overview.LISTING_TIMEOUT), connection)
            return self._database.run(run_overview.list_runs(chosen, before=before, limit=limit), connection)

    def run(self, run_id: int, *, depth: int = 3) -> RunNode:
        """Return a run with its steps, what it waits for, and its children down to *depth*.

        Raises `JobNotFound`, and `NotARun` for a job of another sort.
        """
        self._run_look(run_id)
        for _ in range(LOOKS):
            tree = self._database.run(run_overview.run_tree(run_id, depth))
            if tree:
                ids = [one.node.run.id for one in tree]
                standings = self._database.run(overview.job_standings(ids, MOST_COUNTED))
                return grown(tree, standings)
        raise JobNotFound(run_id)

    def history(
        self, run_id: int, *, after: tuple[str, int] | None = None, limit: int = 1000
    ) -> list[StepRecord]:
        """Return what a run has recorded, in the order in which it began, *after* a branch and place.

        Raises `JobNotFound`, and `NotARun` for a job of another sort.
        """
        self._run_look(run_id)
        return self._database.run(steps.list_steps(run_id, after, limit))

    def activities(self, run_id: int, *, after: int = 0, limit: int = 1000) -> list[ActivityRecord]:
        """Return lines of the log of a run's step calls, after line *after*.

        Raises `JobNotFound`, and `NotARun` for a job of another sort.
        """
        self._run_look(run_id)
        return self._database.run(steps.list_activities(run_id, after, limit))

    def _run_look(self, run_id: int) -> RunLook:
        return checked_run(run_id, self._database.run(run_overview.look_at_run(run_id)))

    def _act_on_run(self, run_id: int, action: str, statement: Statement[list[int]]) -> None:
        for attempt in range(LOOKS):
            if run_id in self._database.run(statement):
                return
            look = self._database.run(run_overview.look_at_run(run_id))
            check_run_refusal(run_id, action, look, last=attempt == LOOKS - 1)

    def _act(
        self, job_id: int, action: Intervention, statement: Statement[dict[int, Verdict]]
    ) -> dict[int, Verdict]:
        for look in range(LOOKS):
            verdicts = self._database.run(statement)
            if job_id in verdicts:
                return verdicts
            end = self._database.run(jobs.job_end(job_id))
            check_refusal(job_id, action, end, last=look == LOOKS - 1)
            if action is Intervention.CANCEL:
                # It may stand in a bundle.
                self._database.run(bundles.untie_jobs([job_id]))
        raise JobNotFound(job_id)
