"""Eight clients are eight clients: what one of them enqueues shares nothing with what the others do."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from bench.catalogue import FLOOR_IN_PYTHON, HOLDFAST
from bench.cluster import Cluster
from bench.peers import protocol
from bench.peers.load import Load
from bench.peers.protocol import Peer
from bench.program import Program, executed_by, perform
from bench.results import Results
from bench.scenarios import inserts
from bench.verdicts import verdicts

TRANSACTIONS = "select count(*), count(distinct xmin::text) from holdfast.jobs"


class Played(Peer):
    """A queue into which a job gets when as many others are on their way as there are callers."""

    together: asyncio.Barrier
    seen: list[tuple[int, int]]

    async def insert(self, number: int) -> None:
        """Wait for the others, and note who enqueued what."""
        async with asyncio.timeout(5):
            await self.together.wait()
        self.seen.append((id(self), number))


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What an adapter told the runner."""
    heard: list[dict[str, Any]] = []
    monkeypatch.setenv("BENCH_DSN", "")
    monkeypatch.setattr(protocol, "say", lambda event, **facts: heard.append({"event": event, **facts}))
    return heard


async def inserted(load: Load) -> dict[int, list[int]]:
    """Play the clients of a load; answers who enqueued which jobs."""
    Played.together, Played.seen = asyncio.Barrier(load.clients * (load.calls or 1)), []
    peers = protocol._peers(Played, "insert", load)
    await protocol._insert(peers, asyncio.Event())
    return {id(peer): [number for who, number in Played.seen if who == id(peer)] for peer in peers}


async def test_each_client_enqueues_by_itself_and_at_the_same_time(said: list[dict[str, Any]]) -> None:
    """Every job once, from every client as many; what opened the connections is not in the figure."""
    found = await inserted(Load(jobs=24, clients=8, calls=1))
    assert [len(numbers) for numbers in found.values()] == [3] * 8
    assert sorted(number for numbers in found.values() for number in numbers) == list(range(24))
    assert [one["jobs"] for one in said] == [16]


@pytest.mark.usefixtures("said")
def test_a_worker_is_one_however_many_clients_there_are() -> None:
    """It is told of the same load."""
    assert len(protocol._peers(Played, "work", Load(jobs=24, clients=8, calls=1))) == 1


async def test_one_client_may_make_eight_calls_at_once(said: list[dict[str, Any]]) -> None:
    """That is a cell of its own."""
    (numbers,) = (await inserted(Load(jobs=24, clients=1, calls=8))).values()
    assert sorted(numbers) == list(range(24))
    assert [one["jobs"] for one in said] == [16]


async def test_a_probe_is_no_warming_up(said: list[dict[str, Any]]) -> None:
    """Where latency is measured, each job has its moment, the first as well."""
    await inserted(Load(jobs=3, latency=True))
    assert [number for number, _ in said[0]["committed"]] == [0, 1, 2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster as a cell has it."""
    with Cluster() as cluster:
        yield cluster


async def transactions(cluster: Cluster, load: Load) -> tuple[int, int]:
    """Enqueue into a fresh schema; answers how many jobs there are then, and of how many transactions."""
    connection = await cluster.connect()
    await connection.execute("drop schema if exists holdfast cascade")
    await perform(HOLDFAST, cluster.dsn, "setup")
    await perform(HOLDFAST, cluster.dsn, "insert", load)
    jobs, commits = await connection.fetchrow(TRANSACTIONS) or (0, 0)
    await connection.close()
    return jobs, commits


async def test_clients_of_holdfast_share_no_commit(cluster: Cluster) -> None:
    """Calls of one client at the same moment do, which is what the other cell is there for."""
    assert await transactions(cluster, Load(jobs=80, clients=8, calls=1)) == (80, 80)
    jobs, commits = await transactions(cluster, Load(jobs=80, clients=1, calls=8))
    assert jobs == 80
    assert commits < 80


async def test_the_floor_in_python_commits_for_every_job() -> None:
    """By the statement that pgbench sends, from clients that share nothing; it runs what it is told of."""
    with Cluster() as cluster:
        await perform(FLOOR_IN_PYTHON, cluster.dsn, "setup")
        await perform(FLOOR_IN_PYTHON, cluster.dsn, "insert", Load(jobs=80, clients=8, calls=1))
        connection = await cluster.connect()
        jobs = await connection.fetchrow(TRANSACTIONS.replace("holdfast.", ""))
        await connection.execute("truncate jobs, live_jobs")
        await connection.close()
        async with Program(FLOOR_IN_PYTHON, cluster.dsn, "work", Load(latency=True)) as worker:
            await worker.go()
            await perform(FLOOR_IN_PYTHON, cluster.dsn, "insert", Load(jobs=5, first=90, latency=True))
            await executed_by([worker], 5)
            report = await worker.stop()
    assert tuple(jobs or ()) == (80, 80)
    assert report["numbers"] == [90, 91, 92, 93, 94]


def test_the_bound_is_of_the_clients_that_share_nothing() -> None:
    """What eight calls of one client do stands beside it, and keeps or misses nothing."""
    from tests.bench.test_verdicts import measured

    strict, shared = (inserts.case(shape, True) for shape in (inserts.EIGHT, inserts.SHARED))
    assert strict.name == "single enqueues, 8 clients, workers listen"
    assert shared.name == "single enqueues, 8 calls at once of one client, workers listen"
    made = Results.begin(jobs=1000, rounds=1)
    made.measurements = [
        *measured(inserts.case(inserts.EIGHT, False), floor=(100.0,), floor_python=(80.0,)),
        *measured(strict, holdfast=(70.0,)),
        *measured(shared, holdfast=(130.0,)),
    ]
    found = {one.what: (one.found.median, one.asked, one.is_kept) for one in verdicts(made)}
    assert found == {
        f"A: {strict.name} ÷ bare insert loop, 8 clients": (0.7, "≥ 0.8", False),
        f"A: {strict.name} ÷ the same loop in Python, 8 clients": (0.875, "", True),
        f"A: {shared.name} ÷ bare insert loop, 8 clients": (1.3, "", True),
    }
