"""The embedded server keeps to its own folder."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import sys
from pathlib import Path
from holdfast.runtime.embedded import EmbeddedServer
with EmbeddedServer(Path(sys.argv[1]) / "data") as server:
    print(server.dsn)
"""


def test_nothing_is_left_in_the_folder_that_all_users_share() -> None:
    """A file there would belong to whoever came first, and keep every other user's server from starting."""
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
