"""Jobs that differ in arguments and traces only have a statement of their own, and nobody may see that."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.model.job import NewJob
from holdfast.store import jobs
from tests.store.scene import KIND, Scene

STORED = """
    select j.id, j.kind, j.queue, j.args::text, j.priority, j.max_attempts, j.timeout, j.retry::text,
           j.concurrency_key, j.tags, j.meta::text, j.parent_id, j.trace, l.kind, l.queue, l.priority,
           l.state, l.concurrency_key, l.place = j.id,
           round(extract(epoch from l.run_at - j.created_at) / 1000)
    from holdfast.jobs j join holdfast.live_jobs l on l.job_id = j.id
    order by j.id"""
SOON = datetime(2999, 1, 1, tzinfo=UTC)
TERMS: list[dict[str, Any]] = [
    {},
    {"kind": "another", "queue": "other", "priority": 9, "max_attempts": 1, "timeout": 0.5},
    {"delay": 9000.0},
    {"delay": 9000.0, "run_at": SOON},
    {"run_at": datetime(2001, 1, 1, tzinfo=UTC)},
    {"retry": '{"backoff": 1}', "tags": ["a", "b c", 'd"'], "meta": '{"who": "ada"}', "parent_id": 7},
]


@pytest.mark.parametrize("terms", TERMS, ids=lambda terms: ",".join(terms) or "none")
async def test_jobs_that_are_alike_are_stored_as_alone_and_beside_others(
    scene: Scene, terms: dict[str, Any]
) -> None:
    """Each has its own arguments and trace, in the order given."""
    alike = [
        NewJob(**({"kind": KIND} | terms), args=f'{{"n": {n}}}', trace=trace)
        for n, trace in enumerate(["00-a", None, "00-b"])
    ]
    stranger = NewJob(kind="stranger", args="{}")
    statement = jobs.enqueue_jobs(alike)
    assert statement.name == "enqueue_alike"
    together = [handle.id for handle in await scene.run(statement)]
    assert together == sorted(together)
    assert {jobs.enqueue_jobs([job]).name for job in alike} == {"enqueue_one"}
    alone = [(await scene.run(jobs.enqueue_jobs([job])))[0].id for job in alike]
    mixed = jobs.enqueue_jobs([*alike, stranger])
    assert mixed.name == "enqueue_jobs"
    beside = [handle.id for handle in await scene.run(mixed)][:-1]
    rows = await scene.db.fetch(STORED)
    assert [row[0] for row in rows[:-1]] == [*together, *alone, *beside]
    stored = [row[1:] for row in rows]
    assert stored[:3] == stored[3:6] == stored[6:9]
    assert [row[2] for row in stored[:3]] == [job.args for job in alike]


@pytest.mark.parametrize("key", ["unique_key", "concurrency_key"])
async def test_jobs_with_keys_take_the_way_that_looks_at_keys(scene: Scene, key: str) -> None:
    """Alike as they are, the second of a unique key is the first."""
    job = NewJob(**{"kind": KIND, "args": "{}", key: "k"})  # type: ignore[arg-type]
    statement = jobs.enqueue_jobs([job, job])
    assert statement.name == "enqueue_jobs"
    ids = {handle.id for handle in await scene.run(statement)}
    assert len(ids) == (1 if key == "unique_key" else 2)
