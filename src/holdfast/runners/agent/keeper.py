"""Stands between the runner and one program: the parent that none of the program's children can leave.

It runs as a script of its own with the standard library alone, so it starts at once.  On Linux it adopts
what a program leaves behind (a daemon, a child in a session of its own), and it kills all of it when the
program has ended or the runner is gone: nobody may work on for an attempt that another runner may hold.
So it does at the moment that the order names as *until*, by the monotonic clock, unless the runner puts it
off: the runner has lost its server, or it is frozen.

It is told what to start, and is asked for signals, by lines of JSON on the socket that its argument names; it
answers there with ``began`` or ``refused``, and at last with ``ended``.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import resource
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# How long what was killed may take to be gone, in seconds: a process inside a dead file system never goes.
LONGEST_DEATH = 5.0
# How long a runner may take to hang up once it was told of the end, in seconds.
LONGEST_GOODBYE = 10.0
# How long it waits at a time, in seconds: milliseconds in 32 bits are 24 days.
LONGEST_WAIT = 3600.0
# Python ignores them; programs expect not to.
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)


def main(channel: int) -> None:
    """Start the program that the runner names on the socket *channel* and stay until all of it is gone."""
    line = socket.socket(fileno=channel)
    os.set_inheritable(channel, False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _adopt()
    _close_copies()
    Keeper(line).keep()


def _adopt() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _close_copies() -> None:
    """Close what uvloop leaves open beside the streams: with a copy of them here their end is not heard."""
    streams = {_place(stream) for stream in range(3)}
    for number in map(int, os.listdir("/dev/fd")):
        if number > 2 and _place(number) in streams:
            os.close(number)


def _place(number: int) -> tuple[int, int] | None:
    """Return which file a descriptor leads to; None where it is closed by now, as that of a listing is."""
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class Keeper:
    """Keeps one program."""

    def __init__(self, line: socket.socket) -> None:
        self._line, self._heard = line, b""
        self._pid = 0
        self._until: float | None = None

    def keep(self) -> None:
        """Start the program, pass signals on, and tell how it ended."""
        order = self._order()
        if order is None:
            return
        self._until = order.get("until")
        # Told by a byte of the child's end, so that waiting for it and for the runner is one wait.
        ended, ending = os.pipe()
        os.set_blocking(ending, False)
        signal.set_wakeup_fd(ending)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        try:
            self._pid = start(order)
        except OSError as error:
            self._tell(refused=error.strerror or str(error), file=error.filename)
            return
        self._tell(began=self._pid)
        _let_go_of_streams()
        status = self._until_end(ended)
        orphans = kill_all(self._pid)
        self._tell(ended=_exit_of(status), orphans=orphans, usage=_usage())
        self._await_goodbye()

    def _until_end(self, ended: int) -> int | None:
        """Wait for the program; None: the runner is gone, or has not put the end off."""
        # Not `select`, which ends at 1023: the channel has the number here that it has in the runner.
        waits = select.poll()
        for number in (self._line.fileno(), ended):
            waits.register(number, select.POLLIN)
        while True:
            left = math.inf if self._until is None else max(0.0, self._until - time.monotonic())
            readable = {number for number, _ in waits.poll(min(left, LONGEST_WAIT) * 1000)}
            if not readable and left <= LONGEST_WAIT:
                return None
            if ended in readable:
                os.read(ended, 4096)
                status = reap(self._pid)
                if status is not None:
                    return status
            if self._line.fileno() in readable and not self._obey():
                return None

    def _obey(self) -> bool:
        """Do what the runner has asked for; False: it is gone."""
        while (order := self._order()) is not None:
            self._until = order.get("until", self._until)
            if "signal" in order:
                self._pass_on(signal.Signals(order["signal"]))
            # Several may have come in one piece, and nothing more may come to wake us.
            if b"\n" not in self._heard:
                return True
        return False

    def _pass_on(self, number: signal.Signals) -> None:
        if number is signal.SIGKILL:
            kill_all(self._pid, wait=False)
        else:
            _signal_group(self._pid, number)

    def _order(self) -> dict[str, Any] | None:
        """Read the next line; None: the runner is gone."""
        while b"\n" not in self._heard:
            try:
                data = self._line.recv(65_536)
            except OSError:
                return None
            if not data:
                return None
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        order: dict[str, Any] = json.loads(line)
        return order

    def _await_goodbye(self) -> None:
        """Stay until the runner hangs up: a word of its own to a closed line would cost it the last one."""
        self._line.settimeout(LONGEST_GOODBYE)
        with suppress(OSError):
            while self._line.recv(65_536):
                pass

    def _tell(self, **facts: Any) -> None:
        # A runner that is gone is noticed where it is read.
        with suppress(OSError):
            self._line.sendall(json.dumps(facts).encode() + b"\n")


def start(order: dict[str, Any]) -> int:
    """Start a program in a session of its own and return its pid; raises OSError where it cannot be run."""
    os.chdir(order["cwd"])
    told, telling = os.pipe()
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(order, keeper, telling)
    os.close(telling)
    with os.fdopen(told) as pipe:
        problem = pipe.read()
    if problem:
        os.waitpid(pid, 0)
        raise OSError(int(problem), os.strerror(int(problem)), order["argv"][0])
    return pid


def _become(order: dict[str, Any], keeper: int, telling: int) -> None:
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (*_RESTORED, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != keeper:
                os._exit(1)
        os.execvpe(order["argv"][0], order["argv"], order["env"])  # noqa: S606 - a command is there to be run
    except OSError as error:
        os.write(telling, str(error.errno).encode())
    finally:
        os._exit(127)


def _let_go_of_streams() -> None:
    """Leave the program's streams to it, so that they end with it."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)


def reap(program: int) -> int | None:
    """Bury whatever has died; answers the status of the *program* if it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == program:
            found = status


def kill_all(program: int, *, wait: bool = True) -> int:
    """Kill the *program*, its group and all that came of it; answers how many outlived the program."""
    killed: set[int] = set()
    deadline = time.monotonic() + LONGEST_DEATH
    while True:
        _signal_group(program, signal.SIGKILL)
        family = descendants(os.getpid())
        for pid in family:
            _signal(pid, signal.SIGKILL)
        killed.update(family)
        if not wait:
            return len(killed)
        reap(program)
        if not descendants(os.getpid()) or time.monotonic() > deadline:
            return len(killed - {program})
        time.sleep(0.01)


def descendants(root: int) -> set[int]:
    """Return every living process below *root*; none where the system does not show them."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if sys.platform == "linux" else ():
        if name.isdigit() and (parent := _parent(int(name))) is not None:
            children.setdefault(parent, []).append(int(name))
    found: set[int] = set()
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found.update(below)
        todo.extend(below)
    return found


def _parent(pid: int) -> int | None:
    """Return the parent of a process; None where it is dead, be it buried or not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name stands in brackets and may hold anything, brackets too.
            state, parent = file.read().rpartition(b")")[2].split()[:2]
    except OSError:
        return None
    return None if state in (b"Z", b"X") else int(parent)


def _signal_group(program: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(program, number)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _exit_of(status: int | None) -> int | None:
    """Return an exit code, a signal as a negative number."""
    return None if status is None else os.waitstatus_to_exitcode(status)


def _usage() -> dict[str, float]:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "user_seconds": round(used.ru_utime, 6),
        "system_seconds": round(used.ru_stime, 6),
        "max_rss_bytes": used.ru_maxrss * unit,
        "blocks_read": used.ru_inblock,
        "blocks_written": used.ru_oublock,
    }


if __name__ == "__main__":
    main(int(sys.argv[1]))
