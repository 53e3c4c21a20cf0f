"""What cannot be kept costs a file, never the outcome of the command that left it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from holdfast.model.assignment import ArtifactLimits
from holdfast.runners.agent.artifacts import FileSender, Found, find
from holdfast.testing import Probe
from tests.runners.agent.counterpart import Answer, Counterpart, Entry
from tests.runners.agent.test_agent import ended
from tests.runners.agent.test_outages import SlowStore


@pytest.mark.parametrize(
    ("glob", "told"),
    [("ba*", "artifact 'bad\\udcff' is left out: "), ("**t", None), ("\x00", None), ("circle", None)],
)
async def test_a_file_that_cannot_be_kept_is_told_and_left_out(
    counterpart: Counterpart, runner: Any, glob: str, told: str | None
) -> None:
    """A name that is no text, a glob that is none, a link in a circle: the rest is kept."""
    await runner()
    script = "printf x > \"$(printf 'bad\\377')\"; ln -s circle circle; echo kept > good"
    entry = await counterpart.offer(script=script, artifacts=[glob, "good"])
    report = await ended(counterpart, entry)
    assert (report["outcome"], report["result"]["artifacts"]) == ("completed", ["good"]), report
    assert entry.artifacts == {"good": b"kept\n"}
    assert told is None or told in entry.log("system")


async def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """It is lost by name and reason; nobody asks the server about it."""
    told: list[str] = []
    nobody = cast("Any", None)
    sender = FileSender(nobody, nobody, told.append)
    await sender.send(Found({"out/gone": tmp_path / "gone"}, []))
    assert sender.kept == []
    assert told == ["artifact out/gone is lost: No such file or directory"]


def test_a_place_that_must_not_be_looked_into_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are told; those beside it are found."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    is_file = Path.is_file

    def refused(path: Path) -> bool:
        if path.name == "a":
            raise PermissionError(13, os.strerror(13), str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refused)
    found = find(tmp_path, ["*"], ArtifactLimits())
    assert list(found.files) == ["b"]
    [told] = found.left_out
    assert told.startswith("artifact 'a' is left out: [Errno 13] Permission denied")


async def sending(counterpart: Counterpart) -> Entry:
    """An assignment whose program has ended, with one file sent and one that is not taken for now."""
    tries = 0

    def refuses(_method: str, path: str) -> Answer | None:
        nonlocal tries
        tries += path.endswith("/artifacts/b")
        return (503, {"detail": "not now"}, {}) if path.endswith("/artifacts/b") else None

    counterpart.refuses = refuses
    entry = await counterpart.offer(script="echo one > a; echo two > b", artifacts=["?"])
    await counterpart.until(lambda: tries)
    return entry


@pytest.mark.parametrize("stop", ["runner", "job"])
async def test_whoever_stops_a_job_whose_program_has_ended_ends_the_sending(
    stop: str, counterpart: Counterpart, runner: Any
) -> None:
    """What it came to stays, with what was sent until then; a note names the rest."""
    agent = await runner()
    entry = await sending(counterpart)
    if stop == "runner":
        await agent.stop(0.0)
    else:
        await counterpart.cancel(entry)
    report = await ended(counterpart, entry)
    assert (report["outcome"], report["result"]["artifacts"]) == ("completed", ["a"])
    assert entry.artifacts == {"a": b"one\n"}
    assert entry.log("system") == "artifacts are lost, as the job was stopped: b\n"


async def test_a_cancel_ends_an_upload_that_hangs(runner: Any) -> None:
    """Nobody waits for the minutes that a slow one may take."""
    server = SlowStore()
    await server.start()
    agent = await runner(server=server.address)
    entry = await server.offer(script="echo one > a", artifacts=["a"])
    await server.until(lambda: server.uploads)
    await server.cancel(entry)
    report = await ended(server, entry)
    assert (report["outcome"], report["result"]["artifacts"]) == ("completed", [])
    await agent.stop(0.0)
    await server.stop()


async def test_an_end_is_on_disk_before_its_files_are_sent(
    counterpart: Counterpart, runner: Any, probe: Probe, tmp_path: Path
) -> None:
    """A runner that is killed then tells it when it starts again: the work must not be done twice."""
    agent = await runner()
    entry = await sending(counterpart)
    [file] = (tmp_path / "runner" / "reports").iterdir()
    kept = msgspec.json.decode(file.read_bytes())
    assert (kept["outcome"], kept["result"]["artifacts"]) == ("completed", [])
    await counterpart.stop()
    await probe.wait_for("server.unreachable")
    await agent.stop(0.0)
    await counterpart.start()
    await runner()
    report = await ended(counterpart, entry)
    assert (report["outcome"], report["result"]["artifacts"]) == ("completed", ["a"])
    await counterpart.until(lambda: not list((tmp_path / "runner" / "reports").iterdir()))
