"""Holdfast's own adapter, driven by the runner as every peer's is."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from bench import environments
from bench.catalogue import HOLDFAST
from bench.cell import Scale
from bench.cluster import Cluster
from bench.drain import drain, enqueue
from bench.exactly_once import NotExactlyOnce, check_completed
from bench.floor import bare
from bench.peers.load import Load
from bench.program import AdapterFailed, Program, executed_by, perform
from bench.scenarios import decay, latency
from bench.scenarios.limits import LimitExceeded, check_limit
from bench.scenarios.runs import Sleepers


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster as a cell has it."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
async def fresh(cluster: Cluster) -> Cluster:
    """The same without anything in it."""
    connection = await cluster.connect()
    await connection.execute("drop schema if exists holdfast cascade")
    # The floor's tables.
    await connection.execute("drop table if exists jobs, live_jobs, finished_jobs")
    await connection.close()
    return cluster


async def test_a_cell_is_durable(fresh: Cluster) -> None:
    """Nothing is measured with the safety off."""
    connection = await fresh.connect()
    settings = [await connection.fetchval(f"show {name}") for name in ("fsync", "synchronous_commit")]
    await connection.close()
    assert settings == ["on", "on"]


async def test_two_processes_drain_a_queue_exactly_once(fresh: Cluster) -> None:
    """The whole way: set up, enqueue, two workers, the check, and costs that are no nonsense."""
    # What this process holds is no memory of the workers'.
    ballast = b"x" * 200_000_000
    load = Load(jobs=300)
    await perform(HOLDFAST, fresh.dsn, "setup", load)
    filled = await enqueue(fresh, HOLDFAST, load)
    drained = await drain(fresh, HOLDFAST, load, processes=2)
    executed = [number for report in drained.reports for number in report["numbers"]]
    assert filled["jobs"] == 300
    assert sorted(executed) == list(range(300))
    assert 0 < drained.rate <= drained.pace * 300 / 299
    assert drained.worker_us > 0
    assert drained.wal_bytes > 100
    assert 20e6 < drained.rss < len(ballast)


async def test_runs_are_done_when_each_of_their_steps_is(fresh: Cluster) -> None:
    """What is noted is a number for each step of each run, and the database calls all of them completed."""
    load = Load(jobs=20, first=3, steps=4)
    await perform(HOLDFAST, fresh.dsn, "setup", load)
    await enqueue(fresh, HOLDFAST, load)
    drained = await drain(fresh, HOLDFAST, load)
    assert sorted(drained.reports[0]["numbers"]) == list(range(12, 92))


async def test_sleepers_are_all_asleep_before_they_are_woken(fresh: Cluster) -> None:
    """The first step of every run is done, nobody holds one, and signals bring all of them to their end."""
    load = Load(jobs=20, steps=2, wait="signal")
    await perform(HOLDFAST, fresh.dsn, "setup", load)
    await enqueue(fresh, HOLDFAST, load)
    connection = await fresh.connect()
    async with Sleepers.beginning(fresh, HOLDFAST, load) as sleepers:
        await sleepers.fall_asleep()
        states = await connection.fetch("select state, count(*) from holdfast.live_jobs group by state")
        await perform(HOLDFAST, fresh.dsn, "signal", load)
        await sleepers.end()
    await connection.close()
    assert [tuple(row) for row in states] == [("waiting", 20)]


async def test_a_worker_that_begins_nothing_more_is_given_up(fresh: Cluster) -> None:
    """A peer that hangs costs its own figure and not the whole run."""
    await perform(HOLDFAST, fresh.dsn, "setup")
    async with Program(HOLDFAST, fresh.dsn, "work", Load()) as worker:
        await worker.go()
        with pytest.raises(AdapterFailed, match=r"only 0 of 5 jobs began, and then none for 0\.05 s"):
            await executed_by([worker], 5, silence=0.05)
        await worker.stop()


async def test_a_worker_that_ends_is_given_up_at_once(fresh: Cluster) -> None:
    """What it said last is in the error: here that its schema is not there."""
    async with Program(HOLDFAST, fresh.dsn, "work", Load()) as worker:
        await worker.go()
        with pytest.raises(AdapterFailed, match=r"ended at its work[^$]*holdfast migrate"):
            await executed_by([worker], 5)


def test_a_run_that_did_not_complete_leaves_no_figure() -> None:
    """A rate that leaves failures out would be a wrong one."""
    with pytest.raises(NotExactlyOnce, match="19 of 20 runs completed"):
        check_completed(19, 20)


async def test_a_drain_that_ran_what_nobody_asked_for_has_no_figure(fresh: Cluster) -> None:
    """Jobs beside those of the load are found by the check."""
    await perform(HOLDFAST, fresh.dsn, "setup")
    await enqueue(fresh, HOLDFAST, Load(jobs=20))
    with pytest.raises(NotExactlyOnce, match="never asked for"):
        await drain(fresh, HOLDFAST, Load(jobs=10))


async def test_a_worse_day_on_which_others_ran_has_no_figure() -> None:
    """Jobs that are due in a month must not count as done today; only a backlog may have begun."""
    scale = Scale(jobs=1000, mass=1000)
    worse = partial(decay.measure_worse, HOLDFAST, scale, name="a bad day", worsen=decay.add_backlog)
    with pytest.raises(NotExactlyOnce, match="never asked for"):
        await worse()
    assert await worse(runs_rest=True)


async def test_a_limit_is_checked_against_what_really_ran(fresh: Cluster) -> None:
    """Two at once are fine under a limit of two; the same intervals exceed a limit of one."""
    load = Load(jobs=30, kind="ms", limit=2, slots=10, latency=True)
    await perform(HOLDFAST, fresh.dsn, "setup", load)
    await enqueue(fresh, HOLDFAST, load)
    drained = await drain(fresh, HOLDFAST, load)
    check_limit(drained, load)
    with pytest.raises(NotExactlyOnce, match="the ends of 30 jobs were noted, and there were 31"):
        check_limit(drained, replace(load, jobs=31))
    began = min(report["began"][0] for report in drained.reports)
    drained.reports[0]["ended"][0][1] = began + 60 * 10**9
    drained.reports[0]["ended"][1][1] = began + 60 * 10**9
    with pytest.raises(LimitExceeded, match="2 are allowed"):
        check_limit(drained, load)


async def test_half_load_is_half_of_what_a_queue_does_and_not_of_how_fast_its_program_starts(
    fresh: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the load would be lightest for whoever takes longest to import its modules."""
    await perform(HOLDFAST, fresh.dsn, "setup")
    async with Program(HOLDFAST, fresh.dsn, "work", Load(latency=True)) as worker:
        await worker.go()
        command = environments.command(HOLDFAST)
        late = ["sh", "-c", 'sleep 3; exec "$@"', "late", *command]
        monkeypatch.setattr(environments, "command", lambda _: late)
        flow = await latency.measured_flow(HOLDFAST, fresh, worker, 300)
        await worker.stop()
    assert flow > 100


async def test_an_adapter_that_breaks_says_its_last_words(fresh: Cluster) -> None:
    """Without tables a worker cannot work: the failure carries what it printed."""
    async with Program(HOLDFAST, fresh.dsn, "work", Load(), patience=30.0) as program:
        await program.go()
        with pytest.raises(AdapterFailed, match="schema 'holdfast' does not exist"):
            await program.hear("worked")


def test_the_floor_checks_itself(fresh: Cluster) -> None:
    """Bare SQL claims and finishes every row once, and what it cannot share out evenly it refuses."""
    bare.setup(fresh)
    assert bare.copy_in(fresh, Load(jobs=2000)) > 0
    assert bare.drain(fresh, Load(jobs=2000), clients=2) > 0
    fresh.run("psql", "-qX", "-c", "insert into finished_jobs select * from finished_jobs where job_id < 3")
    with pytest.raises(
        NotExactlyOnce, match="of 2000 jobs 2000 ended, 2003 ends were written and 0 are left"
    ):
        bare.check_drained(fresh, Load(jobs=2000))
    with pytest.raises(ValueError, match="no multiple"):
        bare.drain(fresh, Load(jobs=1100))


def test_the_floor_inserts_beside_workers_that_end_all_of_it(fresh: Cluster) -> None:
    """Bare workers claim and finish what comes in, and what they ran once they are gone is checked."""
    bare.setup(fresh)
    assert bare.insert_beside_workers(fresh, Load(jobs=800, clients=8), workers=2) > 0
    bare.check_drained(fresh, Load(jobs=800))


def test_bare_workers_that_die_are_told_of(fresh: Cluster) -> None:
    """Whoever inserts alone because the workers could not work has no figure beside them."""
    bare.setup(fresh)
    fresh.run("psql", "-qX", "-c", "drop table finished_jobs")
    with pytest.raises(RuntimeError, match=r'(?s)pgbench ended too soon: .*"finished_jobs" does not exist'):
        bare.insert_beside_workers(fresh, Load(jobs=80, clients=8), workers=2)
