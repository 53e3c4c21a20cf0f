"""A peer that breaks, hangs or loses jobs costs its own figure, and neither the run nor its report."""

import sys
from pathlib import Path

import asyncpg
import psutil
import pytest
from rich.console import Console

from bench import drain, environments, program
from bench.catalogue import HOLDFAST, Contestant, contestant
from bench.cell import Case, Cell, Failure, Figures, Scale
from bench.cluster import Cluster
from bench.exactly_once import NotExactlyOnce
from bench.peers.load import Load
from bench.program import AdapterFailed, Program, perform
from bench.results import Results
from bench.run import run
from bench.scenarios.latency import PaceNotHeld, check_pace, waits
from bench.table import print_tables

CASE = Case(scenario="B", name="drain")
# What an adapter says that has nothing to do, and one line of its own that tells which process it is.
PLAYED = """
import os, pathlib, time
pathlib.Path({path!r}).write_text(str(os.getpid()))
{what}
time.sleep(600)
"""


def play(monkeypatch: pytest.MonkeyPatch, told: Path, what: str) -> None:
    """Put an adapter in everybody's place that does *what* and then hangs; *told* gets its process id."""
    command = [sys.executable, "-c", PLAYED.format(path=str(told), what=what)]
    monkeypatch.setattr(environments, "command", lambda _: command)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (asyncpg.UndefinedTableError("no such table"), "no such table"),
        (asyncpg.InterfaceError("the connection is closed"), "the connection is closed"),
        (psutil.NoSuchProcess(1, msg="gone"), "gone (pid=1)"),
        (TimeoutError(), "TimeoutError"),
        (PaceNotHeld("900 jobs a second got in"), "900 jobs a second got in"),
    ],
)
def test_whatever_a_broken_peer_leads_to_the_run_goes_on(
    error: Exception, reason: str, tmp_path: Path
) -> None:
    """The next one is measured, and the tables say what happened to the first."""

    async def measure(peer: Contestant, _: Scale) -> Figures:
        if peer.name == "pgqueuer":
            raise error
        return {CASE: 1.0}

    both = (contestant("pgqueuer"), contestant("holdfast"))
    made = Results.begin(jobs=1000, rounds=1)
    cell = Cell(scenario="B", name="drain", measure=measure, contestants=both)
    run([cell], Scale(), made, tmp_path / "results.json", lambda _: None)
    assert [one.contestant for one in made.measurements] == ["holdfast"]
    assert [(one.contestant, one.reason) for one in made.failures] == [("pgqueuer", reason)]


def test_a_failure_without_words_does_not_break_the_tables() -> None:
    """An old file may have one."""
    made = Results.begin(jobs=1000, rounds=1)
    made.failures.append(Failure(cell="B drain", contestant="pgqueuer", round=0, reason=""))
    console = Console(record=True, width=100)
    print_tables(made, console)
    assert "failed: B drain: pgqueuer: no reason was given" in console.export_text()


def test_a_probe_that_never_began_leaves_the_latency_without_a_figure() -> None:
    """A percentile of those that came through would flatter whoever lost the rest."""
    report = {"numbers": [10, 12], "began": [1_500_000, 4_000_000]}
    assert waits({"committed": [[10, 1_000_000], [12, 5_000_000]]}, report) == [0.5, 0.0]
    with pytest.raises(NotExactlyOnce, match="1 of 2 probes had not begun when the worker was stopped"):
        waits({"committed": [[10, 1_000_000], [11, 2_000_000]]}, report)


def test_a_half_load_that_was_less_leaves_the_latency_without_a_figure() -> None:
    """Whoever cannot get jobs in at half of his own flow would have an easier pace than the others."""
    check_pace(2000.0, {"jobs": 19_100, "seconds": 10.0})
    with pytest.raises(
        PaceNotHeld, match=r"1,890 jobs a second got in where half load asked for 2,000: 94\.5%"
    ):
        check_pace(2000.0, {"jobs": 18_900, "seconds": 10.0})


def test_a_stream_that_is_late_sends_all_that_is_due() -> None:
    """Calls of a fixed size would keep a producer from its pace whose calls cost more than their jobs."""
    load = Load(jobs=500, first=7000, chunk=10, rate=1000.0)
    assert load.due(0, 0.0) == range(7000, 7010)
    assert load.due(10, 0.01) == range(7010, 7020)
    assert load.due(20, 0.1) == range(7020, 7100)
    assert load.due(495, 9.0) == range(7495, 7500)


async def test_a_question_that_the_database_does_not_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A peer may hold a lock for which the question waits."""
    monkeypatch.setattr(drain, "LONGEST_WAIT", 0.2)
    with Cluster() as cluster:
        look = await cluster.connect()
        with pytest.raises(AdapterFailed, match=r"no answer after 0\.2 s to: select true from pg_sleep"):
            await drain.asked_until(look, "select true from pg_sleep(20)", True)
        await look.close()


async def test_an_adapter_that_does_not_get_ready_does_not_go_on_beside_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It would take its part of the processors from whoever is measured then."""
    play(monkeypatch, tmp_path / "pid", "")
    with pytest.raises(AdapterFailed, match=r"did not say ready in 1 s"):
        async with Program(HOLDFAST, "", "work", Load(), patience=1.0):
            pass
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


async def test_an_adapter_that_does_not_disconnect_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What it had to say it said; the rest of it is ended."""
    monkeypatch.setattr(program, "LONGEST_GOODBYE", 0.2)
    play(monkeypatch, tmp_path / "pid", """print('{"event": "done"}', flush=True)""")
    assert await perform(HOLDFAST, "", "setup") == {"event": "done"}
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
