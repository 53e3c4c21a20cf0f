"""The embedded server keeps to its own folder."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from holdfast.errors import SettingInvalid
from holdfast.runtime.embedded import EmbeddedServer

PROGRAM = """
import shutil, sys
from pathlib import Path
from holdfast.runtime.embedded import EmbeddedServer
with EmbeddedServer(Path(sys.argv[1]) / "data") as server:
    print(server.dsn)
shutil.rmtree(sys.argv[1])
"""


def test_nothing_is_left_behind_least_of_all_where_all_users_share() -> None:
    """A lock in the shared folder would belong to whoever came first, and keep other users' servers away."""
    with tempfile.TemporaryDirectory(prefix="hf", ignore_cleanup_errors=True) as name:
        own, shared = Path(name) / "own", Path(name) / "shared"
        own.mkdir()
        shared.mkdir()
        environment = os.environ | {"TMPDIR": str(shared), "XDG_RUNTIME_DIR": ""}
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(own)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.startswith("postgresql://")
        assert list(shared.iterdir()) == []
        assert not own.exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from holdfast.runtime.embedded import EmbeddedServer
EmbeddedServer(Path(sys.argv[1])).start()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_user_does_not_keep_the_server_up_for_ever() -> None:
    """Whoever comes next to the same folder joins the server left behind, and stops it as the last."""
    with tempfile.TemporaryDirectory(prefix="hf", ignore_cleanup_errors=True) as name:
        folder = Path(name) / "data"
        subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False)
        left_behind = (folder / "postmaster.pid").read_text().split()[0]
        with EmbeddedServer(folder):
            assert (folder / "postmaster.pid").read_text().split()[0] == left_behind
        assert not (folder / "postmaster.pid").exists()


def test_a_folder_that_cannot_be_made_is_a_bad_setting(tmp_path: Path) -> None:
    """The sentence names the folder and the system's reason, instead of a traceback."""
    (tmp_path / "file").touch()
    with pytest.raises(SettingInvalid, match="file/data for the embedded PostgreSQL cannot be made"):
        EmbeddedServer(tmp_path / "file" / "data").start()


@pytest.mark.parametrize("name", ["My Projects", "it's", "c++", "a,b"])
def test_a_folder_that_no_server_can_be_started_in_is_a_bad_setting(tmp_path: Path, name: str) -> None:
    """The wheel hands its path to a shell, and the address of its socket names it."""
    folder = tmp_path / name / "data"
    with pytest.raises(SettingInvalid, match=r"for the embedded PostgreSQL cannot be used: .* in its path"):
        EmbeddedServer(folder).start()
    assert not folder.exists()
