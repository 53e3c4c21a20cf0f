"""History lies in daily partitions: made ahead, filled from the default one, dropped once old and empty."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast.maintenance.partitioner import DAYS_AHEAD, RETRY, Partitioner
from holdfast.maintenance.pruner import Pruner
from holdfast.store import partitions
from holdfast.store.partitions import Partition, PartitionFate
from holdfast.testing import Clock, Probe
from tests.maintenance.history import DAY, ended, make_day, partitions_of, places
from tests.store.scene import Scene

NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)
PARENTS = ("finished_completed", "finished_unhappy", "job_logs", "log_chunks")


@pytest.mark.parametrize("version", [pytest.param(16, marks=pytest.mark.pg16), 18])
async def test_partitions_are_made_for_today_and_three_days_ahead(
    scene: Scene, clock: Clock, duty: Any, version: int
) -> None:
    """All four tables have them, in UTC days, and the next day one more is made."""
    assert int(await scene.db.value("show server_version_num")) // 10_000 == version
    await clock.set(datetime(2026, 1, 15, 23, 59, tzinfo=UTC))
    await duty(Partitioner).lead(await scene.lead())
    for parent in PARENTS:
        assert await partitions_of(scene, parent) == [f"{parent}_202601{day}" for day in (15, 16, 17, 18)]
    await clock.advance(60)
    await duty(Partitioner).lead(await scene.lead())
    for parent in PARENTS:
        assert (await partitions_of(scene, parent))[-1] == f"{parent}_20260119"


async def test_a_new_schema_has_the_partitions_that_its_first_leader_would_make(scene: Scene) -> None:
    """None is attached under the first jobs to end: whoever starts on a new schema has jobs to see to."""
    for parent in PARENTS:
        days = [name[-8:] for name in await partitions_of(scene, parent)]
        first = datetime.strptime(days[0], "%Y%m%d").replace(tzinfo=UTC)
        assert days == [f"{first + n * DAY:%Y%m%d}" for n in range(1 + DAYS_AHEAD)]


async def test_what_ends_today_lies_in_the_partition_of_today(scene: Scene, clock: Clock, duty: Any) -> None:
    """Rows find their partition by themselves, on either side of midnight."""
    await clock.set(NOON)
    await duty(Partitioner).lead(await scene.lead())
    await scene.complete(await scene.one())
    await clock.set(datetime(2026, 1, 16, tzinfo=UTC))
    await scene.complete(await scene.one())
    assert await places(scene) == {"finished_completed_20260115": 1, "finished_completed_20260116": 1}


@pytest.mark.pg16  # a newer one reads IST as what the session's own zone calls so
async def test_a_day_is_one_of_utc_wherever_its_maker_lives(scene: Scene, clock: Clock) -> None:
    """Behind a pooler a session has the role's zone and style, and IST is read as the time of Israel."""
    await clock.set(NOON)
    session = await scene.session()
    await session.execute("set timezone = 'Asia/Kolkata'; set datestyle = 'SQL, DMY'")
    make = partitions.make_partition(await scene.lead(), Partition("job_logs", NOON.date()))
    assert await scene.run(make, session) is PartitionFate.MADE
    first = NOON.replace(hour=0)
    for moment in (first, first + DAY - timedelta(microseconds=1), first - timedelta(microseconds=1)):
        await scene.db.fetch("insert into holdfast.job_logs values (1, 1, 0, $1, 'info', 'x')", moment)
    assert await places(scene, "job_logs") == {"job_logs_20260115": 2, "job_logs_rest": 1}


async def test_rows_in_the_default_partition_move_into_a_new_one(
    scene: Scene, clock: Clock, duty: Any
) -> None:
    """What ended before the first leader came is not lost from sight; rows of other days stay."""
    await clock.set(NOON)
    today = [*await ended(scene, NOON, 3), *await ended(scene, NOON, outcome="failed")]
    (yesterday,) = await ended(scene, NOON - DAY)
    await duty(Partitioner).lead(await scene.lead())
    assert await places(scene) == {
        "finished_completed_20260115": 3,
        "finished_completed_rest": 1,
        "finished_unhappy_20260115": 1,
    }
    assert await places(scene, "job_logs") == {"job_logs_20260115": 4, "job_logs_rest": 1}
    assert set(await scene.states()) == {*today, yesterday}


async def test_a_partition_is_found_by_the_id_of_a_job(scene: Scene, clock: Clock, duty: Any) -> None:
    """A new partition has the indexes of its parent."""
    await clock.set(NOON)
    await duty(Partitioner).lead(await scene.lead())
    indexes = """
        select left(tablename, -9) from pg_indexes
        where schemaname = $1 and tablename ~ '_20260115$' and indexdef ~ '\\(job_id' group by 1 order by 1"""
    assert await scene.db.fetch(indexes, scene.db.schema) == [(parent,) for parent in PARENTS]


async def test_a_second_leader_makes_nothing_twice(scene: Scene, clock: Clock) -> None:
    """Whoever comes second finds the partition there."""
    await clock.set(NOON)
    term = await scene.lead()
    make = partitions.make_partition(term, Partition("job_logs", NOON.date()))
    assert await scene.run(make) is PartitionFate.MADE
    assert await scene.run(make) is PartitionFate.THERE


async def test_a_crowded_default_partition_is_left_alone(scene: Scene, clock: Clock) -> None:
    """Moving very many rows would hold workers up: they stay, and are pruned where they are."""
    await clock.set(NOON)
    await scene.db.fetch(
        "insert into holdfast.job_logs select n, 1, 0, holdfast.now(), 'info', 'x' "
        "from generate_series(1, 100001) n"
    )
    make = partitions.make_partition(await scene.lead(), Partition("job_logs", NOON.date()))
    assert await scene.run(make) is PartitionFate.CROWDED
    assert await places(scene, "job_logs") == {"job_logs_rest": 100_001}


async def test_making_a_partition_gives_way_to_a_worker(
    scene: Scene, clock: Clock, duty: Any, probe: Probe
) -> None:
    """While somebody's transaction writes to the default partition the leader gives up for now."""
    await clock.set(NOON)
    job = await scene.one()
    session = await scene.session()
    finishing = session.transaction()
    await finishing.start()
    await scene.complete(job, connection=session)
    term, partitioner = await scene.lead(), duty(Partitioner)
    assert await partitioner.lead(term) == RETRY
    fates = {told["partition"]: told["fate"] for told in probe.seen("partition.tended")}
    assert fates["finished_completed_20260115"] is PartitionFate.BUSY
    assert fates["finished_unhappy_20260115"] is PartitionFate.MADE
    await finishing.commit()
    assert await partitioner.lead(term) > RETRY
    assert await places(scene) == {"finished_completed_20260115": 1}


async def test_a_partition_is_dropped_once_all_of_it_is_past_the_retention(
    scene: Scene, clock: Clock, duty: Any
) -> None:
    """Completed ones after 14 days, failed ones and logs after 30: not a moment before the day is over."""
    await clock.set(NOON)
    days = {parent: [NOON - n * DAY for n in (31, 30, 15, 14)] for parent in PARENTS}
    for parent in PARENTS:
        for day in days[parent]:
            await make_day(scene, parent, day)
    await duty(Partitioner).lead(await scene.lead())
    left = {parent: (await partitions_of(scene, parent))[:-4] for parent in PARENTS}
    assert left == {
        "finished_completed": ["finished_completed_20260101"],
        "finished_unhappy": [f"finished_unhappy_{day}" for day in ("20251216", "20251231", "20260101")],
        "job_logs": [f"job_logs_{day}" for day in ("20251216", "20251231", "20260101")],
        "log_chunks": [f"log_chunks_{day}" for day in ("20251216", "20251231", "20260101")],
    }


async def test_a_partition_with_ended_jobs_waits_for_the_pruner(
    scene: Scene, clock: Clock, duty: Any, probe: Probe
) -> None:
    """Rows elsewhere could not be found any more once the partition is gone."""
    await clock.set(NOON)
    old = await make_day(scene, "finished_completed", NOON - 20 * DAY)
    await ended(scene, NOON - 20 * DAY)
    term, partitioner = await scene.lead(), duty(Partitioner)
    await partitioner.lead(term)
    assert probe.seen("partition.tended")[-1] == {"partition": old, "fate": PartitionFate.FILLED}
    await duty(Pruner).lead(term)
    await partitioner.lead(term)
    assert probe.seen("partition.tended")[-1] == {"partition": old, "fate": PartitionFate.DROPPED}
    assert old not in await partitions_of(scene, "finished_completed")


async def test_dropping_gives_way_to_a_reader(scene: Scene, clock: Clock, duty: Any, probe: Probe) -> None:
    """A report that reads history holds up the drop, and the drop holds up no worker."""
    await clock.set(NOON)
    old = await make_day(scene, "finished_completed", NOON - 20 * DAY)
    session = await scene.session()
    reading = session.transaction()
    await reading.start()
    await scene.execute(session, "select count(*) from holdfast.finished_jobs")
    term, partitioner = await scene.lead(), duty(Partitioner)
    assert await partitioner.lead(term) == RETRY
    assert {"partition": old, "fate": PartitionFate.BUSY} in probe.seen("partition.tended")
    await scene.complete(await scene.one())
    await reading.commit()
    await partitioner.lead(term)
    assert old not in await partitions_of(scene, "finished_completed")


async def test_a_partition_that_is_gone_is_no_trouble(scene: Scene) -> None:
    """A former leader may have dropped it between look and drop."""
    drop = partitions.drop_partition(await scene.lead(), "job_logs_20200101")
    assert await scene.run(drop) is PartitionFate.GONE


async def test_jobs_end_while_partitions_are_made(
    scene: Scene, duty: Any, work: Any, client: holdfast.Client, probe: Probe
) -> None:
    """Nothing that ends meanwhile is lost, whichever partition it was on its way to."""
    app = holdfast.App()

    @app.job
    async def quick() -> None: ...

    term, partitioner = await scene.lead(), duty(Partitioner)
    handles = await client.enqueue_many([quick.job() for _ in range(3000)])
    await work(app, slots=20)
    await probe.wait_for("attempts.reported", times=3)
    while await partitioner.lead(term) == RETRY:
        pass
    await client.wait(handles[-1].id, timeout=60)
    for handle in handles:
        await client.wait(handle.id, timeout=60)
    assert sum((await places(scene)).values()) == 3000
    assert "finished_completed_rest" not in await places(scene)
