"""Jobs that a worker has claimed as one row, whatever their handlers want and whatever goes wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from holdfast.errors import DatabaseUnavailable
from holdfast.model.outcome import Complete
from holdfast.rules.bundling import ENOUGH, FIRST_REST
from holdfast.store import attempts
from holdfast.store.attempts import Demand
from holdfast.testing import Probe, ThrowawayDatabase
from holdfast.worker import attention, claims, strays
from holdfast.worker.bundles import Bundles
from tests.store.scene import Scene
from tests.worker.handlers import SOON

COUNT = 120
ENDS = "select outcome, count(*), count(distinct job_id) from holdfast.finished_jobs group by 1 order by 1"
LEFT = "select count(*) from holdfast.bundles"


@pytest.fixture
def bundled(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Has workers bundle whatever they claim but for the first time; collects the jobs."""
    monkeypatch.setattr("holdfast.rules.bundling.MANY", 0)
    seen, took = set[int](), Bundles.took

    def noted(self: Bundles, claimed: Any) -> None:
        seen.update(job.id for job in claimed if job.tie is not None)
        took(self, claimed)

    monkeypatch.setattr(Bundles, "took", noted)
    return seen


def logs(job: holdfast.Job) -> str:
    job.log.info("here")
    return "logged"


def reports_progress(job: holdfast.Job) -> str:
    job.progress(0.5, "half")
    return "reported"


def saves(job: holdfast.Job) -> str:
    job.save_checkpoint({"a": 1})
    return str(job.load_checkpoint())


def fails_once(job: holdfast.Job) -> str:
    if job.attempt == 1:
        msg = "not yet"
        raise ValueError(msg)
    return "at last"


def snoozes_once(job: holdfast.Job) -> Any:
    return holdfast.Snooze(0.0) if job.attempt == 1 else "awake"


def cancels(job: holdfast.Job) -> Any:  # noqa: ARG001 - a handler that wants to know its job
    return holdfast.Cancel("no need")


def writes(job: holdfast.Job) -> str:
    with job.transaction() as transaction:
        transaction.execute("select 1")
    return "written"


def writes_as_of_its_beginning(job: holdfast.Job) -> str:
    with job.transaction() as transaction:
        transaction.execute("set transaction isolation level repeatable read")
        transaction.execute("select 1")
    return "written"


async def writes_on_the_loop_as_of_its_beginning(job: holdfast.Job) -> str:
    async with job.transaction() as transaction:
        await transaction.execute("set transaction isolation level serializable")
        await transaction.execute("select 1")
    return "written"


def answers(job: holdfast.Job) -> dict[str, int]:
    return {"number": job.id}


@pytest.mark.parametrize(
    "handler",
    [
        logs,
        reports_progress,
        saves,
        fails_once,
        snoozes_once,
        cancels,
        writes,
        writes_as_of_its_beginning,
        writes_on_the_loop_as_of_its_beginning,
        answers,
    ],
)
async def test_handlers_in_bundles_get_all_they_want(
    client: holdfast.Client, work: Any, scene: Scene, bundled: set[int], handler: Callable[..., Any]
) -> None:
    """Each job ends once as its handler says, with what it wrote, and no bundle is left."""
    app = holdfast.App()
    kind = app.job(kind="it", retry=SOON)(handler)
    handles = await client.enqueue_many(kind.job() for _ in range(COUNT))
    await work(app, slots=20)
    for handle in handles:
        with suppress(holdfast.JobCancelled):
            await client.wait(handle.id, timeout=30)
    outcome = "cancelled" if handler is cancels else "completed"
    assert await scene.db.fetch(ENDS) == [(outcome, COUNT, COUNT)]
    assert len(bundled) > COUNT / 2
    assert await scene.db.value(LEFT) == 0
    again = await scene.db.value("select count(*) from holdfast.finished_jobs where attempt > 1")
    assert again == (COUNT if handler in (fails_once, snoozes_once) else 0)
    if handler is logs:
        assert await scene.db.value("select count(distinct job_id) from holdfast.job_logs") == COUNT
    if handler is answers:
        wrong = "select count(*) from holdfast.finished_jobs where (result ->> 'number')::bigint <> job_id"
        assert await scene.db.value(wrong) == 0


async def test_a_process_may_write_as_of_its_beginning_too(
    client: holdfast.Client, work: Any, scene: Scene, bundled: set[int]
) -> None:
    """Its transaction begins elsewhere, once the worker has given the attempt a row."""
    app = holdfast.App()
    kind = app.job(kind="it", executor="process")(writes_as_of_its_beginning)
    handles = await client.enqueue_many(kind.job() for _ in range(COUNT))
    await work(app, slots=4)
    for handle in handles:
        await client.wait(handle.id, timeout=30)
    assert bundled
    assert await scene.db.fetch(ENDS) == [("completed", COUNT, COUNT)]
    assert await scene.db.value("select count(*) from holdfast.finished_jobs where attempt > 1") == 0


@pytest.mark.parametrize("error", [DatabaseUnavailable("the connection broke"), RuntimeError("a surprise")])
async def test_an_end_whose_answer_is_lost_is_written_once(
    client: holdfast.Client,
    work: Any,
    scene: Scene,
    probe: Probe,
    bundled: set[int],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    """The batch is written, and tried again because nobody knows."""
    monkeypatch.setattr("holdfast.worker.reporter.LONGEST_PAUSE", 0.05)
    complete, lost = Bundles.complete, list[int]()

    async def cut_off(self: Bundles, batch: Any) -> list[int]:
        ties = {one.fence.job_id: tie for tie, one in batch}
        ended = await complete(self, batch)
        if len(lost) < 3:
            lost.append(len(ended))
            self._ties |= ties
            raise error
        return ended

    monkeypatch.setattr(Bundles, "complete", cut_off)
    app = holdfast.App()

    @app.job
    async def greet() -> None: ...

    handles = await client.enqueue_many(greet.job() for _ in range(COUNT))
    process = await work(app, slots=20)
    for handle in handles:
        await client.wait(handle.id, timeout=30)
    async with asyncio.timeout(20):
        await process.worker.held.wait_empty()
    assert bundled
    assert sum(lost) > 0
    assert await scene.db.fetch(ENDS) == [("completed", COUNT, COUNT)]
    assert await scene.db.value(LEFT) == 0
    assert probe.seen("attempts.stale") == []


async def test_a_bundle_whose_claim_was_not_answered_is_given_back(
    client: holdfast.Client,
    work: Any,
    scene: Scene,
    bundled: set[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker knows nothing of it; its jobs are given back unspent, and run."""
    monkeypatch.setattr(strays, "EVERY", 0.0)
    run, lost = claims.Claims.run, list[int]()

    async def cut_off(self: Any, statement: Any) -> Any:
        claimed = await run(self, statement)
        if not lost and statement.name == "claim_bundled" and claimed:
            lost.extend(job.id for job in claimed)
            raise DatabaseUnavailable("the connection broke")
        return claimed

    monkeypatch.setattr(claims.Claims, "run", cut_off)
    app = holdfast.App()

    @app.job
    async def greet() -> None: ...

    handles = await client.enqueue_many(greet.job() for _ in range(COUNT))
    await work(app, slots=20)
    for handle in handles:
        await client.wait(handle.id, timeout=30)
    assert lost
    assert bundled.isdisjoint(lost)
    assert await scene.db.fetch(ENDS) == [("completed", COUNT, COUNT)]
    told = "select count(*), min(outcome), max(reason) from holdfast.attempts"
    assert await scene.db.fetch(told) == [(len(lost), "released", "the answer of the claim was lost")]
    assert await scene.db.value("select sum(failures) from holdfast.finished_jobs") == 0


async def test_a_stop_gives_back_what_is_in_bundles(
    client: holdfast.Client, work: Any, scene: Scene, bundled: set[int], probe: Probe
) -> None:
    """What has not begun goes back unspent; what runs is handed back as well once the grace is over."""
    app, started = holdfast.App(), asyncio.Event()

    @app.job
    async def greet(n: int) -> None:
        if n >= 30:
            started.set()
            await asyncio.Event().wait()

    await client.enqueue_many(greet.job(n=n) for n in range(COUNT))
    process = await work(app, slots=20)
    async with asyncio.timeout(20):
        await started.wait()
    await process.stop(0.0)
    assert bundled
    assert await scene.db.value(LEFT) == 0
    states = await scene.db.fetch("select state, sum(failures) from holdfast.live_jobs group by 1")
    assert states == [("available", 0)]
    assert await scene.db.fetch(ENDS) == [("completed", 30, 30)]
    # Nobody but the worker itself had to see to it.
    assert probe.seen("jobs.rescued") == []


async def test_a_long_job_of_a_bundle_is_shown_as_running(
    client: holdfast.Client,
    work: Any,
    scene: Scene,
    bundled: set[int],
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It began out of the buffer, and its row says so after a while."""
    monkeypatch.setattr(attention, "WORTH_MARKING", 0.1)
    app, go = holdfast.App(), asyncio.Event()

    @app.job
    async def greet(n: int) -> None:
        if n >= 100:
            await go.wait()

    handles = await client.enqueue_many(greet.job(n=n) for n in range(COUNT))
    await work(app, slots=20)
    last = [handle.id for handle in handles[100:]]
    running = "select count(*) = 20 from holdfast.job_overview where state = 'running' and id = any ($1)"
    await eventually(lambda: scene.db.value(running, last))
    assert bundled
    go.set()
    for handle in handles:
        await client.wait(handle.id, timeout=30)
    assert await scene.db.fetch(ENDS) == [("completed", COUNT, COUNT)]


async def test_a_worker_that_was_lost_writes_no_end_by_a_bundle(
    client: holdfast.Client, work: Any, scene: Scene, bundled: set[int], lose: Any, probe: Probe
) -> None:
    """Its jobs run again elsewhere, and end once."""
    app, go, ran = holdfast.App(), asyncio.Event(), list[int]()

    @app.job
    async def greet(n: int) -> None:
        ran.append(n)
        if len(ran) == 60:
            await lose()
        if 40 < len(ran) <= 60:
            await go.wait()

    handles = await client.enqueue_many(greet.job(n=n) for n in range(COUNT))
    await work(app, slots=20)
    await probe.wait_for("lease.lost")
    go.set()
    for handle in handles:
        await client.wait(handle.id, timeout=30)
    assert bundled
    assert await scene.db.fetch(ENDS) == [("completed", COUNT, COUNT)]
    assert await scene.db.value(LEFT) == 0


async def test_jobs_of_a_key_run_one_after_the_other_in_bundles_too(
    client: holdfast.Client, work: Any, scene: Scene, bundled: set[int]
) -> None:
    """Whoever of two workers has them, and however many are claimed at once."""
    app, running, most = holdfast.App(), Counter[str](), Counter[str]()

    @app.job
    async def greet(key: str) -> None:
        running[key] += 1
        most[key] = max(most[key], running[key])
        await asyncio.sleep(0)
        running[key] -= 1

    keys = [f"key {n % 40}" for n in range(5 * COUNT)]
    handles = await client.enqueue_many(greet.job(key=key).with_options(concurrency_key=key) for key in keys)
    for _ in range(2):
        await work(app, slots=20)
    for handle in handles:
        await client.wait(handle.id, timeout=30)
    assert set(most.values()) == {1}
    assert len(bundled) > COUNT
    assert await scene.db.fetch(ENDS) == [("completed", len(keys), len(keys))]
    assert await scene.db.value(LEFT) == 0


def claimed(first: int, count: int, bundle: int | None = 7) -> list[Any]:
    """Jobs as a claim brings them."""
    ties = [None if bundle is None else (bundle, count, nth) for nth in range(count)]
    return [SimpleNamespace(id=first + nth, tie=tie) for nth, tie in enumerate(ties)]


def test_an_end_that_hands_a_permit_on_is_left_to_the_statement_that_writes_it(db: ThrowawayDatabase) -> None:
    """A limit may have come while the job was in its bundle: the permit would be had and counted nowhere."""
    one = Bundles(db.database)
    one.took(claimed(1, 2))
    ends = [
        attempts.Ended(attempts.Fence(job_id, 1), Complete(), heir=heir)
        for job_id, heir in ((1, None), (2, attempts.Fence(3, 1)))
    ]
    bundled, others = one.divide(ends)
    assert [end for _, end in bundled] == ends[:1]
    assert others == ends[1:]


async def test_a_worker_that_takes_its_bundles_apart_makes_fewer(db: ThrowawayDatabase) -> None:
    """Where handlers want more than to be completed, bundles cost more than they save; it is tried again."""
    one = Bundles(db.database)
    one.begin(["greet", "run", "holdfast:deliver"], ["run"])
    assert one.kinds == ("greet",)
    demand = Demand(worker_id=1, queues=("default",), kinds=("greet",), limit=ENOUGH, free=0)
    rests = list[int]()
    for first in (0, 1000, 2000):
        one.took(claimed(first, ENOUGH))
        await one.untie([attempts.Fence(first + nth, 1) for nth in range(ENOUGH // 4)])
        rests.append(next(n for n in range(10_000) if one.kinds_for(demand)))
    assert rests == [FIRST_REST + 1, 2 * FIRST_REST + 1, 4 * FIRST_REST + 1]
    one.took(claimed(4000, ENOUGH))
    assert one.kinds_for(demand) == ("greet",)
