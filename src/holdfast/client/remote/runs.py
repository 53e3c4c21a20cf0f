"""Runs by way of the service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from holdfast.client.remote.connection import RemoteConnection
from holdfast.client.run_operator import DEEPEST
from holdfast.client.wire.jobs import Cancelled, Done
from holdfast.client.wire.runs import (
    Activities,
    ForkOrder,
    History,
    Met,
    RunPage,
    RunSort,
    Signalled,
    SignalOrder,
)
from holdfast.client.wire.shape import Because
from holdfast.model.run import EVERY_RUN, RunFilter, RunNode, RunSummary, UnreadSignal
from holdfast.model.step import MAIN, ActivityRecord, StepRecord


class RemoteRuns:
    """The verbs of `RunOperator`, asked of the service."""

    def __init__(self, connection: RemoteConnection) -> None:
        self._connection = connection

    async def find(
        self, chosen: RunFilter = EVERY_RUN, *, limit: int = 50, before: int | None = None
    ) -> Sequence[RunSummary]:
        """Return up to *limit* runs with ids below *before*, newest first, and what each one waits for."""
        given = asdict(chosen)
        given["state"] = given.pop("states")
        return (await self._connection.get("/runs", RunPage, limit=limit, before=before, **given)).runs

    async def show(self, run_id: int, *, depth: int = DEEPEST) -> RunNode:
        """Return a run with its steps, what it waits for, and its children down to *depth*."""
        return await self._connection.get(f"/runs/{run_id}", RunNode, depth=depth)

    async def is_run(self, job_id: int) -> bool | None:
        """Say whether a job is a run; None where no worker has known its kind."""
        return (await self._connection.get(f"/runs/{job_id}/sort", RunSort)).is_run

    async def signals(self, run_id: int) -> Sequence[UnreadSignal]:
        """Return the signals that a run has not read yet, oldest first."""
        return await self._connection.get(f"/runs/{run_id}/signals", list[UnreadSignal])

    async def history(
        self, run_id: int, *, after: tuple[str, int] | None = None, limit: int = 1000
    ) -> Sequence[StepRecord]:
        """Return what a run has recorded, in the order in which it began, *after* a branch and place."""
        branch, place = after or (None, None)
        path = f"/runs/{run_id}/history"
        found = await self._connection.get(path, History, after_branch=branch, after_place=place, limit=limit)
        return found.steps

    async def activities(self, run_id: int, *, after: int = 0, limit: int = 1000) -> Sequence[ActivityRecord]:
        """Return lines of the log of a run's step calls, after line *after*."""
        path = f"/runs/{run_id}/activities"
        return (await self._connection.get(path, Activities, after=after, limit=limit)).activities

    async def signal(
        self,
        run_id: int,
        name: str,
        payload: Any = None,
        *,
        key: str | None = None,
        reason: str | None = None,
    ) -> int:
        """Send a signal; answers its id, or that of the earlier one with the same *key*."""
        order = SignalOrder(name=name, payload=payload, key=key, reason=reason)
        return (await self._connection.post(f"/runs/{run_id}/signal", Signalled, order)).id

    async def pause(self, run_id: int, reason: str | None = None) -> Sequence[int]:
        """Pause a run, and its children that follow it; answers all that were met."""
        return (await self._connection.post(f"/runs/{run_id}/pause", Met, Because(reason))).ids

    async def resume(self, run_id: int, reason: str | None = None) -> Sequence[int]:
        """Let a paused run go on with its children; answers all that were met."""
        return (await self._connection.post(f"/runs/{run_id}/resume", Met, Because(reason))).ids

    async def cancel(self, run_id: int, reason: str | None = None) -> bool:
        """Cancel a run: True if it has ended, False if it makes up for its steps first."""
        return (await self._connection.post(f"/runs/{run_id}/cancel", Cancelled, Because(reason))).ended

    async def retry(self, run_id: int, reason: str | None = None) -> None:
        """Take a failed or cancelled run up from its failed step."""
        await self._connection.post(f"/runs/{run_id}/retry", Done, Because(reason))

    async def fork(
        self,
        run_id: int,
        *,
        at: str,
        branch: str = MAIN,
        place: int | None = None,
        reason: str | None = None,
    ) -> int:
        """Enqueue a run that remembers what another one had recorded up to the end of its step *at*."""
        order = ForkOrder(at=at, branch=branch, place=place, reason=reason)
        return (await self._connection.post(f"/runs/{run_id}/fork", Done, order)).id
