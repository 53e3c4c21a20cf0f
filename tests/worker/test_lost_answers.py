"""The answer of a claim may be lost on its way: what it took is found again and given back."""

from typing import Any

import pytest

import holdfast
from holdfast.testing import Probe
from holdfast.worker import claimer
from tests.store.scene import Scene

WAITING_CLAIM = """
    select pid from pg_stat_activity
    where wait_event_type = 'Lock' and query like '%' || $1 || '%' and query like '%live_jobs%'"""
ASLEEP = "select count(*) from holdfast.workers where asleep"


@pytest.mark.parametrize("noticed", ["at once", "too early"])
async def test_jobs_of_a_claim_whose_answer_was_lost_run_all_the_same(
    client: holdfast.Client,
    work: Any,
    scene: Scene,
    probe: Probe,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    noticed: str,
) -> None:
    """The connection breaks under a claim, and the claim is written before or after the worker looked."""
    monkeypatch.setattr(claimer, "RECONCILE_EVERY", 0.5)
    app = holdfast.App()

    @app.job
    async def greet() -> str:
        return "hello"

    await work(app)
    worker = (await probe.wait_for("worker.registered"))["worker_id"]
    await eventually(lambda: scene.db.value(ASLEEP))
    session = await scene.session()
    transaction = session.transaction()
    await transaction.start()
    await scene.execute(session, "select id from holdfast.workers for update")
    handle = await client.enqueue(greet.job())
    pid = await eventually(lambda: scene.db.value(WAITING_CLAIM, scene.db.schema))
    # This is what the claim would have written; its answer never reaches the worker.
    assert [job.id for job in await scene.claim(worker, connection=session)] == [handle.id]
    assert await session.fetchval("select pg_terminate_backend($1, 5000)", pid)
    if noticed == "too early":
        await eventually(lambda: _next_claim_waits(scene, pid))
    await transaction.commit()
    assert await client.wait(handle.id, timeout=20) == "hello"
    assert await scene.db.fetch("select attempt, outcome, reason from holdfast.attempts") == [
        (1, "released", "the answer of the claim was lost")
    ]
    assert await scene.db.fetch("select attempt, failures from holdfast.finished_jobs") == [(2, 0)]


async def _next_claim_waits(scene: Scene, former: int) -> bool:
    pid = await scene.db.value(WAITING_CLAIM, scene.db.schema)
    return pid is not None and pid != former
