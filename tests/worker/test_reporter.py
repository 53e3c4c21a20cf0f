"""The reporter on its own: its statements, and what becomes of decisions that cannot be written."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from holdfast.errors import DatabaseUnavailable
from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Complete, Fail, PutBack
from holdfast.rules.outcome import released
from holdfast.runtime.events import Events
from holdfast.store import attempts
from holdfast.store.attempts import Ended, Fence
from holdfast.store.database import Database
from holdfast.store.statement import Statement
from holdfast.testing import Probe, ThrowawayDatabase
from holdfast.worker import reporter
from holdfast.worker.buffer import Buffer
from holdfast.worker.bundles import Bundles
from holdfast.worker.permits import Permits
from holdfast.worker.reporter import Reporter
from holdfast.worker.running import Held, Running
from tests.store.scene import Scene, fence


def reporter_of(database: Database, held: Held, probe: Probe) -> Reporter:
    """Make a reporter of attempts that have logged nothing."""
    permits, bundles = Permits(Buffer(), 0), Bundles(database)
    return Reporter(database, held, permits, Events(probe), before_flush=lambda _: None, bundles=bundles)


async def test_a_stopped_reporter_gives_up_what_the_database_does_not_take(db: ThrowawayDatabase) -> None:
    """A decision that was put back by the stop would be tried again for ever, behind everybody's back."""
    held, probe = Held(), Probe()
    reporter = reporter_of(Database(db.config), held, probe)
    held.take([Fence(1, 1)])
    reporter.release([Fence(1, 1)], "the worker is stopping")
    await probe.wait_for("report.delayed")
    await reporter.stop()
    assert [task for task in asyncio.all_tasks() if task.get_name() == "holdfast report"] == []


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[int]]]:
    """Which statement was made for which jobs."""
    told = list[tuple[str, list[int]]]()

    def noting(make: Any) -> Any:
        def noted(batch: Sequence[Ended]) -> Any:
            told.append((make.__name__, [one.fence.job_id for one in batch]))
            return make(batch)

        return noted

    for make in (attempts.complete_jobs, attempts.finish_jobs):
        monkeypatch.setattr(attempts, make.__name__, noting(make))
    return told


async def completed(scene: Scene, *jobs: ClaimedJob) -> tuple[Held, Probe]:
    """Report that these attempts are completed, all at once, and wait until that is written."""
    held, probe = Held(), Probe()
    reporter = reporter_of(scene.db.database, held, probe)
    held.take(fence(job) for job in jobs)
    for job in jobs:
        reporter.report(Running.now(job), Complete())
    await reporter.flush()
    return held, probe


async def test_plain_ends_have_a_statement_of_their_own_and_children_the_other(
    scene: Scene, written: list[tuple[str, list[int]]]
) -> None:
    """What the cheaper one leaves out goes on to the one that knows of parents; nothing is lost or stale."""
    worker = await scene.worker()
    await scene.enqueue(3)
    first, child, last = await scene.claim(worker)
    await scene.db.fetch("update holdfast.live_jobs set family_id = 5 where job_id = $1", child.id)
    held, probe = await completed(scene, first, child, last)
    assert written == [("complete_jobs", [first.id, child.id, last.id]), ("finish_jobs", [child.id])]
    assert set((await scene.states()).values()) == {"completed"}
    assert (held.fences, probe.seen("attempts.stale")) == (set(), [])


async def test_a_crowded_database_has_one_batch_to_write_at_a_time(
    scene: Scene, written: list[tuple[str, list[int]]]
) -> None:
    """Where many ends took it long, the next ones wait for what is under way, until a write was quick."""
    held, worker = Held(), await scene.worker()
    reporting = reporter_of(scene.db.database, held, Probe())
    await scene.enqueue(reporter.MANY + 4)
    jobs = await scene.claim(worker, limit=reporter.MANY + 4)
    held.take(fence(job) for job in jobs)
    await scene.db.fetch(
        "create function holdfast.dawdle() returns trigger language plpgsql as"
        f" 'begin perform pg_sleep({2 * reporter.CROWDED}); return null; end'"
    )
    await scene.db.fetch(
        "create trigger dawdle after delete on holdfast.live_jobs execute function holdfast.dawdle()"
    )
    for job in jobs[:-4]:
        reporting.report(Running.now(job), Complete())
    await reporting.flush()
    batches = len(written)
    for job in jobs[-4:]:
        reporting.report(Running.now(job), Complete())
        # A write that may begin has begun.
        for _ in range(3):
            await asyncio.sleep(0)
    await reporting.flush()
    first, *others = (job.id for job in jobs[-4:])
    assert [ids for _, ids in written[batches:]] == [[first], others]
    assert not held.fences


async def test_one_write_that_hangs_does_not_stop_a_crowded_worker(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    """Somebody's open transaction has a job's row; the ends of the others are written meanwhile."""
    monkeypatch.setattr(reporter, "CROWDED", 0.0)
    monkeypatch.setattr(reporter, "HANGING", 0.05)
    held, worker = Held(), await scene.worker()
    reporting = reporter_of(scene.db.database, held, Probe())
    ended = "select outcome from holdfast.finished_jobs where job_id = $1"
    await scene.enqueue(reporter.MANY + 2)
    *many, locked, free = await scene.claim(worker, limit=reporter.MANY + 2)
    held.take(fence(job) for job in (*many, locked, free))
    for job in many:
        reporting.report(Running.now(job), Complete())
    await reporting.flush()
    session = await scene.session()
    async with session.transaction():
        await scene.execute(
            session, "select job_id from holdfast.live_jobs where job_id = $1 for update", locked.id
        )
        reporting.report(Running.now(locked), Complete())
        # A write that may begin has begun.
        await asyncio.sleep(0)
        reporting.report(Running.now(free), Complete())
        assert await eventually(lambda: scene.db.value(ended, free.id))
        assert await scene.db.value(ended, locked.id) is None
    await reporting.flush()
    assert not held.fences


async def test_a_plain_end_whose_lease_is_lost_is_told_as_stale(
    scene: Scene, written: list[tuple[str, list[int]]]
) -> None:
    """Neither statement takes it, the job is another attempt's, and the others of its batch are ended."""
    worker = await scene.worker()
    await scene.enqueue(2)
    lost, mine = await scene.claim(worker)
    stale = msgspec.structs.replace(lost, attempt=lost.attempt + 1)
    held, probe = await completed(scene, stale, mine)
    assert written == [("complete_jobs", [lost.id, mine.id]), ("finish_jobs", [lost.id])]
    assert await scene.states() == {lost.id: "running", mine.id: "completed"}
    assert probe.seen("attempts.stale") == [{"fences": [fence(stale)]}]
    assert held.fences == set()


@pytest.mark.parametrize("decision", [Complete(), Fail(error="no", reason="no"), released("no room")])
async def test_an_end_whose_answer_was_lost_is_no_stale_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, decision: Complete | Fail | PutBack
) -> None:
    """It is written again, found written, and told as accepted; nobody is alarmed."""
    database, lost = scene.db.database, list[Any]()
    run = database.run_read_committed

    async def breaks(statement: Statement[Any]) -> Any:
        answer = await run(statement)
        if not lost:
            lost.append(answer)
            raise DatabaseUnavailable("the connection broke")
        return answer

    monkeypatch.setattr(database, "run_read_committed", breaks)
    held, probe, job = Held(), Probe(), await scene.one()
    reporting = reporter_of(database, held, probe)
    held.take([fence(job)])
    reporting.report(Running.now(job), decision)
    await reporting.flush()
    assert lost == [[job.id]]
    assert probe.seen("attempts.stale") == []
    [told] = probe.seen("attempts.reported")
    assert (told["accepted"], told["stale"]) == (1, [])


async def test_a_surprise_after_a_part_is_written_brings_back_only_the_rest(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is recorded already is not written again and then told as stale."""
    monkeypatch.setattr(reporter, "LONGEST_PAUSE", 0.01)
    make, broken = attempts.finish_jobs, [True]

    def breaks(batch: Sequence[Ended]) -> Any:
        if broken.pop() if broken else False:
            raise RuntimeError("a surprise")
        return make(batch)

    monkeypatch.setattr(attempts, "finish_jobs", breaks)
    worker = await scene.worker()
    await scene.enqueue(2)
    plain, child = await scene.claim(worker)
    await scene.db.fetch("update holdfast.live_jobs set family_id = 5 where job_id = $1", child.id)
    held, probe = await completed(scene, plain, child)
    await probe.wait_for("attempts.reported", lambda told: told["accepted"] == 1, times=2)
    assert set((await scene.states()).values()) == {"completed"}
    assert (held.fences, probe.seen("attempts.stale")) == (set(), [])
