"""`holdfast bench` measures a database and leaves nothing behind."""

import json
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.cli.bench import print_figures
from holdfast.cli.trial import Figure
from holdfast.testing import ThrowawayDatabase

Run = Callable[..., Awaitable[Any]]

pytestmark = pytest.mark.usefixtures("here")

LEFT = "select count(*) from pg_namespace where nspname like 'holdfast_bench_%'"


async def test_a_bench_measures_everything_and_drops_its_schema(
    db: ThrowawayDatabase, holdfast_command: Run
) -> None:
    """Figures for A, B and C come out, the user's own schema is not touched, and no other is left."""
    done = await holdfast_command("bench", "--jobs", "200", "--yes", "--json")
    assert done.code == 0, done.err
    figures = {one["name"]: one["value"] for one in json.loads(done.out)}
    assert list(figures) == [
        "bulk enqueue",
        "single enqueues, 8 clients",
        "drain, 1 process",
        "commit to handler, p50",
        "commit to handler, p95",
        "commit to handler, p99",
    ]
    assert all(value >= 0 for value in figures.values())
    assert "as hard as it can" in done.err
    assert await db.value(LEFT) == 0
    assert await db.value("select count(*) from holdfast.jobs") == 0


async def test_a_bench_asks_before_it_loads_a_database(db: ThrowawayDatabase, holdfast_command: Run) -> None:
    """Where nobody can be asked, nothing is done."""
    done = await holdfast_command("bench")
    assert done.code == 2
    assert done.err.endswith("holdfast: nobody can be asked here: say --yes\n")
    assert await db.value(LEFT) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_bench_that_is_stopped_drops_its_schema_too(
    db: ThrowawayDatabase,
    here: dict[str, str],
    start_holdfast: Any,
    eventually: Any,
    number: signal.Signals,
) -> None:
    """Be it by a person, by the end of its time or by that of the terminal."""
    program = await start_holdfast("bench", "--jobs", "200000", "--yes", **here)
    await eventually(lambda: db.value(LEFT))
    program.send(number)
    assert await program.ended() == 130
    assert await db.value(LEFT) == 0


def test_figures_stand_below_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    """Each column has a name, and values end where the others do."""
    print_figures([Figure("bulk enqueue", 123456.0, "jobs/s"), Figure("commit to handler, p50", 1.5, "ms")])
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "figure                    value  unit",
        "bulk enqueue            123,456  jobs/s",
        "commit to handler, p50     1.50  ms",
    ]
