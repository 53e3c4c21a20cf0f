"""The embedded server keeps to its own folder."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

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
