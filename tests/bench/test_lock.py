"""Two runs at the same time are refused on the whole machine, not only where they write into one folder."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import __main__ as command
from bench import lock, run
from bench.lock import MachineTaken, alone

# Has the machine and says so, until it is ended.
HOLDER = """
import pathlib, subprocess, sys
from bench import lock
lock.PLACE = pathlib.Path({place!r})
with lock.alone("figures in a folder"):
    {child}
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock of the test's own, whoever else measures on this machine."""
    monkeypatch.setattr(lock, "PLACE", tmp_path / "lock")
    return tmp_path / "lock"


@contextmanager
def holder(place: Path, child: str = "pass") -> Iterator[subprocess.Popen[str]]:
    """Another process that has the machine."""
    program = HOLDER.format(place=str(place), child=child)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        yield other
        other.kill()


def test_a_second_run_is_refused_at_once_and_told_who_measures(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may write into another folder: the processors are the same."""
    measured: list[object] = []
    monkeypatch.setattr(run, "run", lambda *_: measured.append(1))
    with holder(place) as other:
        arguments = ["run", "--only", "holdfast", "--out", str(tmp_path / "mine")]
        done = CliRunner().invoke(command.app, arguments, env={"COLUMNS": "500"})
    assert (done.exit_code, measured) == (2, [])
    assert f"this machine is taken by process {other.pid} since 20" in done.output
    assert "for figures in a folder" in done.output


def test_a_process_that_was_killed_holds_the_machine_no_more(place: Path) -> None:
    """Nobody has to remove a file by hand, also where a server of its cell outlives it."""
    with holder(place, "subprocess.Popen(['cat'], stdin=subprocess.PIPE)") as other:
        with pytest.raises(MachineTaken), alone("mine"):
            pass
        other.kill()
        other.wait()
        with alone("mine"):
            assert f"process {other.pid}" not in place.read_text("utf-8")


def test_the_machine_is_free_again_after_a_run() -> None:
    """And who had it before is forgotten."""
    for what in ("a long name of the first run", "the second"):
        with alone(what):
            assert lock.PLACE.read_text("utf-8").endswith(f"for {what}\n")
            assert lock.PLACE.read_text("utf-8").count("process") == 1
