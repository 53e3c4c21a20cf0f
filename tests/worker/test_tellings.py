"""What a worker says of itself: only what is so."""

from dataclasses import replace
from typing import Any

import pytest

import holdfast
from holdfast.cli.wiring import WorkerProcess
from holdfast.errors import DatabaseUnavailable
from holdfast.runtime.events import Events
from holdfast.testing import Probe, ThrowawayDatabase
from holdfast.worker.config import WorkerConfig

app = holdfast.App()


@app.job(queue="mail")
async def greet() -> None:
    """Nobody enqueues it here."""


async def test_a_worker_that_never_was_says_no_goodbye(db: ThrowawayDatabase) -> None:
    """Without a database no worker is registered, so none drains or stops."""
    told: list[str] = []
    away = replace(db.config, dsn="postgresql://127.0.0.1:1/none")
    events = Events(lambda event, _fields: told.append(event))
    process = WorkerProcess(app, WorkerConfig(database=away, queues=("mail",)), events)
    with pytest.raises(DatabaseUnavailable):
        await process.start()
    assert await process.stop()
    assert not {"worker.draining", "worker.stopped"}.intersection(told)


async def test_a_queue_that_no_kind_uses_is_told_once(work: Any, probe: Probe) -> None:
    """A misspelt queue would leave its worker idle without a word."""
    await work(app, queues=("mail", "mial"))
    assert [fields["queues"] for fields in probe.seen("queues.unused")] == ["mial"]


async def test_queues_of_kinds_are_no_news(work: Any, probe: Probe) -> None:
    """A worker on its application's own queues has nothing to warn of."""
    await work(app)
    assert probe.seen("queues.unused") == []
