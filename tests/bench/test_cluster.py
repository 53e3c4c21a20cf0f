"""A cluster leaves nothing behind, also where it did not come to its block."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import cluster
from bench.cluster import Cluster


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where clusters are made; the server's own user must get there."""
    place = Path(tempfile.mkdtemp(prefix="holdfast-place-"))
    place.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    shutil.rmtree(place)


def test_a_server_that_does_not_start_says_why_and_leaves_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port that somebody took, or a machine without enough memory: the words are in the server's log."""
    monkeypatch.setitem(cluster.SETTINGS, "max_connections", "none")
    with pytest.raises(RuntimeError, match='invalid value for parameter "max_connections"'), Cluster():
        pass
    assert list(place.iterdir()) == []


def test_a_start_that_is_broken_off_leaves_no_server(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of a short cell is the start of its cluster, so Ctrl-C often falls into it."""
    control, started = Cluster._control, list[int]()

    def broken_off(self: Cluster, action: str, *options: str) -> None:
        control(self, action, *options)
        if action == "start":
            started.append(int((place / self._root.name / "data" / "postmaster.pid").read_text().split()[0]))
            raise KeyboardInterrupt

    monkeypatch.setattr(Cluster, "_control", broken_off)
    with pytest.raises(KeyboardInterrupt), Cluster():
        pass
    assert len(started) == 1
    # Who has ended may still have to be fetched by its parent.
    assert not Path(f"/proc/{started[0]}/exe").exists()
    assert list(place.iterdir()) == []
