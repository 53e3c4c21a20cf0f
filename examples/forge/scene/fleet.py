"""Worker processes as an operator would start them, and one of them killed while it works."""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from examples.forge.database import Connection
from examples.forge.scene.commands import command, environment
from examples.forge.settings import Settings

SLOTS = 4
# What a worker gets to finish its jobs, and what its process gets to end beyond that, in seconds.
GRACE, BEYOND_GRACE = 10.0, 15.0
# How long a frozen worker rests before we look, in seconds: what it sent last has to arrive.
FROZEN = 0.05
# How often we look whether all of that is done, and for how long, in seconds: well below any lease.
LOOK_EVERY, PATIENCE = 0.01, 0.5

_HELD = """
select j.id, j.attempt, j.kind, j.state from holdfast.job_overview j
join holdfast.workers w on w.id = j.worker_id
where w.pid = %s and j.state in ('claimed', 'running') order by j.id
"""
_BUSY = """
select w.pid from holdfast.workers w join holdfast.job_overview j on j.worker_id = w.id
where j.state = 'running' and w.state = 'online' group by w.pid order by count(*) desc, w.pid
"""
# Also those of other workers, for sessions do not tell whose they are.  What waits for a lock may wait for
# one that the frozen worker has, and is not done before that is gone.
_UNDER_WAY = """
select exists (select from pg_stat_activity where datname = current_database() and state = 'active'
               and application_name like 'holdfast worker%%' and wait_event_type is distinct from 'Lock'
               and query_start <= %s)
"""


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job that a worker held when it was killed; *state* says whether its handler ran."""

    job_id: int
    attempt: int
    kind: str
    state: str


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a worker: who, when by the database's clock, and what it held."""

    worker: str
    pid: int
    at: datetime
    held: list[HeldJob]
    ttl: float


class Fleet:
    """Worker processes that run while entered, with logs in *folder* and leases of *ttl* seconds."""

    def __init__(self, settings: Settings, folder: Path, *, workers: int, ttl: float) -> None:
        self._settings, self._folder, self._count, self._ttl = settings, folder, workers, ttl
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.exit_codes: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            for number in range(1, self._count + 1):
                self._start(f"worker-{number}")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, name: str) -> None:
        options = (f"--slots={SLOTS}", f"--ttl={self._ttl:g}s", f"--grace={GRACE:g}s", f"--name={name}")
        with self._log(name).open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command("worker", "--app=examples.forge.app:app", *options),
                cwd=self._folder,
                env=environment(self._settings),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal is ours to pass on, in good order.
                start_new_session=True,
            )

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def complaints(self) -> list[str]:
        """Return the last words of workers that ended although nobody told them to."""
        ended = [name for name, process in self.processes.items() if process.poll() is not None]
        return [
            f"{name} ended with {self.processes[name].returncode}: {self._last_words(name)}" for name in ended
        ]

    def _last_words(self, name: str) -> str:
        return self._log(name).read_text("utf-8", errors="replace").strip()[-1000:] or "it said nothing"

    def kill_one_at_work(self, connection: Connection) -> Death | None:
        """Kill the busiest worker with SIGKILL, but only while it holds running jobs; None if none does now.

        It is frozen first, so that what it holds cannot change between our look and its death.
        """
        busy = connection.execute(_BUSY).fetchone()
        name = next((n for n, process in self.processes.items() if busy and process.pid == busy[0]), None)
        if name is None:
            return None
        process = self.processes[name]
        process.send_signal(signal.SIGSTOP)
        time.sleep(FROZEN)
        is_still = are_done(connection)
        if not (is_still and any(job.state == "running" for job in _held(connection, process.pid))):
            process.send_signal(signal.SIGCONT)
            return None
        process.kill()
        self.exit_codes[name] = process.wait()
        del self.processes[name]
        return Death(name, process.pid, _now(connection), _held(connection, process.pid), self._ttl)

    def stop(self) -> None:
        """Ask every worker to stop, and kill what has not within its grace."""
        for process in self.processes.values():
            process.terminate()
        for name, process in self.processes.items():
            try:
                self.exit_codes[name] = process.wait(GRACE + BEYOND_GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                self.exit_codes[name] = process.wait()
        self.processes.clear()


def _held(connection: Connection, pid: int) -> list[HeldJob]:
    return [HeldJob(*row) for row in connection.execute(_HELD, [pid])]


def _now(connection: Connection) -> datetime:
    now: datetime
    [(now,)] = connection.execute("select clock_timestamp()").fetchall()
    return now


def are_done(connection: Connection) -> bool:
    """Wait for what workers have sent until now; False: that takes too long."""
    began, give_up_at = _now(connection), time.monotonic() + PATIENCE
    while connection.execute(_UNDER_WAY, [began]).fetchall() == [(True,)]:
        if time.monotonic() > give_up_at:
            return False
        time.sleep(LOOK_EVERY)
    return True
