"""What cannot be kept costs a file, never the outcome of the command that left it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.model.assignment import ArtifactLimits
from holdfast.runners.agent.artifacts import Found, find, send
from tests.runners.agent.counterpart import Counterpart
from tests.runners.agent.test_agent import ended


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
    assert await send(nobody, nobody, Found({"out/gone": tmp_path / "gone"}, []), told.append) == []
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
