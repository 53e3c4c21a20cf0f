"""What an operator sees of runs and does to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.app.signals import signal_statement
from holdfast.client.answer import (
    LOOKS,
    MOST_NAMED,
    PAUSED,
    RESUMED,
    check_run_refusal,
    checked_run,
    fork_refusal,
)
from holdfast.client.job_operator import JobOperator
from holdfast.client.trees import grown
from holdfast.errors import JobNotFound, RunEnded
from holdfast.model.audit import Mandate
from holdfast.model.run import EVERY_RUN, RunFilter, RunNode, RunSummary, UnreadSignal
from holdfast.model.step import MAIN, ActivityRecord, StepRecord
from holdfast.rules.seeds import first_seed
from holdfast.rules.waiting import MOST_COUNTED
from holdfast.store import audit, overview, run_overview, runs, signals, steps
from holdfast.store.database import Database
from holdfast.store.run_overview import RunLook
from holdfast.store.runs import ForkPoint
from holdfast.store.statement import Statement

DEEPEST = 3
# How far down somebody may ask for.
DEEPEST_OF_ALL = 20


class RunOperator:
    """Lists, shows, signals, pauses, resumes, cancels, retries and forks runs in the name of *actor*.

    Every verb for one run raises `JobNotFound`, and `NotARun` for a job of another sort.
    """

    def __init__(self, database: Database, actor: str) -> None:
        self._database, self._actor = database, actor
        self._jobs = JobOperator(database, actor)

    async def find(
        self, chosen: RunFilter = EVERY_RUN, *, limit: int = 50, before: int | None = None
    ) -> Sequence[RunSummary]:
        """Return up to *limit* runs with ids below *before*, newest first, and what each one waits for.

        Raises `DatabaseRefused` after 15 s: a narrower filter is needed then.
        """
        async with self._database.transaction() as connection:
            await self._database.run(overview.plan_freely(overview.LISTING_TIMEOUT), connection)
            statement = run_overview.list_runs(chosen, before=before, limit=limit)
            return await self._database.run(statement, connection)

    async def show(self, run_id: int, *, depth: int = DEEPEST) -> RunNode:
        """Return a run with its steps, what it waits for, and its children down to *depth*."""
        await self._look(run_id)
        for _ in range(LOOKS):
            tree = await self._database.run(run_overview.run_tree(run_id, depth))
            if tree:
                ids = [one.node.run.id for one in tree]
                standings = await self._database.run(overview.job_standings(ids, MOST_COUNTED))
                return grown(tree, standings)
        raise JobNotFound(run_id)

    async def is_run(self, job_id: int) -> bool | None:
        """Say whether a job is a run; None where no worker has known its kind.  Raises only `JobNotFound`."""
        look = await self._database.run(run_overview.look_at_run(job_id))
        if look is None:
            raise JobNotFound(job_id)
        return look.is_run

    async def signals(self, run_id: int) -> Sequence[UnreadSignal]:
        """Return the signals that a run has not read yet, oldest first."""
        await self._look(run_id)
        return await self._database.run(signals.list_signals(run_id))

    async def history(
        self, run_id: int, *, after: tuple[str, int] | None = None, limit: int = 1000
    ) -> Sequence[StepRecord]:
        """Return what a run has recorded, in the order in which it began, *after* a branch and place."""
        await self._look(run_id)
        return await self._database.run(steps.list_steps(run_id, after, limit))

    async def activities(self, run_id: int, *, after: int = 0, limit: int = 1000) -> Sequence[ActivityRecord]:
        """Return lines of the log of a run's step calls, after line *after*."""
        await self._look(run_id)
        return await self._database.run(steps.list_activities(run_id, after, limit))

    async def signal(
        self,
        run_id: int,
        name: str,
        payload: Any = None,
        *,
        key: str | None = None,
        reason: str | None = None,
    ) -> int:
        """Send a signal; answers its id, or that of the earlier one with the same *key*.

        The audit log names the signal and leaves out its payload.  Raises `RunEnded`, `PayloadTooLarge`.
        """
        statement = signal_statement(run_id, name, payload, key)
        try:
            async with self._database.transaction() as connection:
                sent = await self._database.run(statement, connection)
                detail = {"signal": sent, "name": name, "key": key}
                mandate = Mandate(self._actor, reason)
                note = audit.write_audit(mandate, "run.signal", f"job {run_id}", detail)
                await self._database.run(note, connection)
        except RunEnded:
            await self._look(run_id)
            raise
        return sent

    async def pause(self, run_id: int, reason: str | None = None) -> Sequence[int]:
        """Pause a run, and its children that follow it, at their next step; answers all that were met.

        Raises `StateConflict` where it has ended.
        """
        return await self._act(run_id, PAUSED, runs.pause_runs([run_id], Mandate(self._actor, reason)))

    async def resume(self, run_id: int, reason: str | None = None) -> Sequence[int]:
        """Let a paused run go on with its children, or one whose code did not fit; answers all that were met.

        Raises `StateConflict` where it is not paused.
        """
        return await self._act(run_id, RESUMED, runs.resume_runs([run_id], Mandate(self._actor, reason)))

    async def cancel(self, run_id: int, reason: str | None = None) -> bool:
        """Cancel a run: True if it has ended, False if it makes up for its steps first.

        Raises `StateConflict` for one that has ended.
        """
        await self._look(run_id)
        return await self._jobs.cancel(run_id, reason)

    async def retry(self, run_id: int, reason: str | None = None) -> None:
        """Take a failed or cancelled run up from its failed step.

        Raises `StateConflict`, also for one that has made up for its steps, and `DuplicateJob`.
        """
        await self._look(run_id)
        await self._jobs.retry(run_id, reason)

    async def fork(
        self,
        run_id: int,
        *,
        at: str,
        branch: str = MAIN,
        place: int | None = None,
        reason: str | None = None,
    ) -> int:
        """Enqueue a run that remembers what another one had recorded up to the end of its step *at*.

        Of several steps of that name in *branch* it is the last one, or that at *place*.  Answers its id.
        Raises `StepNotFound`, which names the steps that have finished.
        """
        point = ForkPoint(branch, at, place)
        source = await self._jobs.show(run_id)
        seed = first_seed(run_id, source.created_at)
        statement = runs.fork_run(run_id, seed, point, Mandate(self._actor, reason))
        forked = await self._database.run(statement)
        if forked is None:
            finished = await self._database.run(steps.list_steps(run_id, None, MOST_NAMED))
            raise fork_refusal(run_id, point, await self._look(run_id), finished)
        return forked

    async def _look(self, run_id: int) -> RunLook:
        return checked_run(run_id, await self._database.run(run_overview.look_at_run(run_id)))

    async def _act(self, run_id: int, action: str, statement: Statement[list[int]]) -> list[int]:
        for attempt in range(LOOKS):
            met = await self._database.run(statement)
            if run_id in met:
                return met
            look = await self._database.run(run_overview.look_at_run(run_id))
            check_run_refusal(run_id, action, look, last=attempt == LOOKS - 1)
        raise JobNotFound(run_id)
