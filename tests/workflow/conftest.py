"""Runs and what they do: an application to fill, and a run that is brought to rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast.cli.wiring import WorkerProcess
from holdfast.testing import ThrowawayDatabase

Rest = Callable[..., Any]


@pytest.fixture
def app() -> holdfast.App:
    """An application for the test's workflows."""
    return holdfast.App()


@pytest.fixture
def calls() -> list[str]:
    """What the steps of a test have done, in order."""
    return []


@pytest.fixture
def rests(db: ThrowawayDatabase, eventually: Any) -> Rest:
    """Waits until a run is suspended: ``await rests(run_id)`` answers the reason."""

    async def wait(run_id: int) -> Any:
        return await eventually(
            lambda: db.value(
                "select coalesce(s.pause_reason, s.reason) from holdfast.suspensions s "
                "join holdfast.live_jobs l on l.job_id = s.run_id and l.state = 'waiting' "
                "where s.run_id = $1",
                run_id,
            )
        )

    return wait


@pytest.fixture
def lapse() -> Callable[[WorkerProcess], None]:
    """Has the time of every attempt that a worker runs be over now: ``lapse(process)``."""

    def end(process: WorkerProcess) -> None:
        for running in process.worker.held.running.values():
            assert running.limit is not None
            running.limit.reschedule(0.0)

    return end
