"""What runs in a child process: one handler after the other, on the main thread.

A second thread reads what the parent says.  When the parent is gone a busy child kills itself and all that
its handler started: nobody would learn what the handler came to, and another attempt may begin.
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import spawn
from types import FrameType
from typing import Any

from holdfast.app.answers import checkpoint_text
from holdfast.app.handler import Handler
from holdfast.app.job import Job, Transaction
from holdfast.app.signature import Signature
from holdfast.errors import LeaseLost
from holdfast.model.job import ClaimedJob
from holdfast.rules.outcome import storable
from holdfast.store.database import DatabaseConfig
from holdfast.store.sync_sessions import SyncSessions
from holdfast.worker import endings, wire
from holdfast.worker.transaction import Beside, SyncTransaction

PR_SET_PDEATHSIG = 1


def main(channel: int, parent: int) -> None:
    """Serve the parent at the other end of the socket *channel* until it hangs up."""
    _die_with(parent)
    for number in (signal.SIGINT, signal.SIGTERM):
        # The parent decides.  Not SIG_IGN: programs that a handler starts would inherit that.
        signal.signal(number, _ignored)
    # What the handler starts must not keep the line open.
    os.set_inheritable(channel, False)
    HandlerProcess(Link(socket.socket(fileno=channel))).serve()


def _ignored(_number: int, _frame: FrameType | None) -> None:
    return None


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        # The kernel's word also holds while a handler keeps the interpreter's lock.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


class Link:
    """The child's end of the line: messages out from any thread, calls and answers in on one."""

    def __init__(self, line: socket.socket) -> None:
        self._line, self._stream = line, line.makefile("rb")
        # Reentrant: a finaliser may log while this thread is sending.
        self._lock = threading.RLock()
        self._owner = os.getpid()
        self._numbers = itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[wire.Answer]] = {}
        # The port of the call that runs.  A thread that outlives its handler must not speak for the next one.
        self._speaker: LinkPort | None = None
        self.calls: queue.SimpleQueue[wire.Call | None] = queue.SimpleQueue()
        self.busy = False

    def hear(self) -> wire.FromParent | None:
        """Wait for the next message; None: the parent hung up."""
        header = self._stream.read(wire.HEADER_BYTES)
        if len(header) < wire.HEADER_BYTES:
            return None
        body = self._stream.read(size := wire.body_bytes(header))
        return wire.from_parent(body) if len(body) == size else None

    def listen(self) -> None:
        """Pass calls and answers on until the parent hangs up."""
        with suppress(OSError):
            while (message := self.hear()) is not None:
                match message:
                    case wire.Call():
                        self.busy = True
                        self.calls.put(message)
                    case wire.Answer():
                        self._answers.pop(message.wish).put(message)
        if self.busy:
            _kill_family()
        self.calls.put(None)

    def begin(self, speaker: LinkPort) -> None:
        """Let a port speak until its call ends."""
        self._speaker = speaker

    def end(self, ending: wire.Ending) -> None:
        """Say what the call came to; its port has nothing to say any more."""
        with self._lock:
            self._speaker, self.busy = None, False
            self.tell(ending)

    def tell(self, message: wire.FromChild, speaker: LinkPort | None = None) -> bool:
        """Say something that needs no answer; False: the call of *speaker* has ended."""
        # A fork of the handler's own has inherited this line, but it has no say here.
        if os.getpid() == self._owner:
            frame = wire.frame(message)
            with self._lock:
                if speaker is not None and speaker is not self._speaker:
                    return False
                self._line.sendall(frame)
        return True

    def ask(self, wish: wire.Wanting, speaker: LinkPort) -> Any:
        """Wait for the answer to a wish and return its value; raises what the parent met instead.

        Raises `LeaseLost` where the call of *speaker* has ended.
        """
        wish.wish = next(self._numbers)
        answers = self._answers[wish.wish] = queue.SimpleQueue()
        if not self.tell(wish, speaker):
            del self._answers[wish.wish]
            raise LeaseLost(speaker.claimed.id, speaker.claimed.attempt)
        answer = answers.get()
        if answer.problem is not None:
            raise wire.unpacked(answer.problem)
        return answer.value


def _kill_family() -> None:
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


class LinkPort:
    """What stands behind the `Job` of a handler in a child process: the parent, at the end of the line."""

    def __init__(self, link: Link, claimed: ClaimedJob, sessions: SyncSessions) -> None:
        self.claimed, self._link, self._sessions = claimed, link, sessions
        self._began = time.monotonic()

    def progress(self, fraction: float, note: str | None) -> None:
        """Keep the newest progress."""
        self._link.tell(wire.Progress(fraction, note), self)

    def save_checkpoint(self, state: Any, version: int) -> Any:
        """Save the state to go on from."""
        return self._link.ask(wire.Save(checkpoint_text(state), version), self)

    def load_checkpoint(self, version: int) -> Any:
        """Load the saved state, or None."""
        return self._link.ask(wire.Load(version), self)

    def delete_checkpoint(self) -> Any:
        """Forget the saved state."""
        return self._link.ask(wire.Delete(), self)

    def transaction(self, job: Job) -> Transaction:
        """Begin a transaction that ends with the job's completion."""
        worker = Beside(self._began, self._open_up, self._settle, self._settled)
        return SyncTransaction(job, worker, self._sessions)

    def _open_up(self) -> None:
        if self.claimed.tie is not None:
            self._link.ask(wire.OpenUp(), self)

    def _settle(self) -> None:
        self._link.ask(wire.Settle(), self)

    def _settled(self, committed: bool) -> None:
        self._link.tell(wire.Settled(committed), self)


class LinkLogHandler(logging.Handler):
    """Puts records of the standard logging module into the log of the attempt that is running."""

    def __init__(self, link: Link) -> None:
        super().__init__(level=logging.INFO)
        self._link = link
        self._port: LinkPort | None = None
        self._strangers: set[threading.Thread] = set()

    def begin(self, port: LinkPort) -> None:
        """Begin a call: what is said of another one, or in a thread of before, is not in its log."""
        self._strangers = {*threading.enumerate()} - {threading.main_thread()}
        self._port = port

    def end(self) -> None:
        """Keep nothing more."""
        self._port = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record where it belongs to the call that runs."""
        if (port := self._port) is None or not self._belongs(record, port.claimed):
            return
        try:
            self._link.tell(wire.Line(record.levelno, storable(self.format(record))), port)
        except Exception:
            self.handleError(record)

    def _belongs(self, record: logging.LogRecord, claimed: ClaimedJob) -> bool:
        """Tell by the `Job.log` that wrote it, or else by whose thread it is."""
        if hasattr(record, "job_id"):
            return (record.job_id, getattr(record, "attempt", None)) == (claimed.id, claimed.attempt)
        return threading.current_thread() not in self._strangers


class HandlerProcess:
    """Runs what it is called for, one handler at a time."""

    def __init__(self, link: Link) -> None:
        self._link, self._log = link, LinkLogHandler(link)
        self._main_loaded = False

    def serve(self) -> None:
        """Run handlers until the parent hangs up."""
        setup = self._link.hear()
        if not isinstance(setup, wire.Setup):
            return
        self._sessions = SyncSessions(DatabaseConfig(**setup.database))
        logging.getLogger().setLevel(setup.level)
        logging.getLogger().addHandler(self._log)
        logging.getLogger("holdfast.job").setLevel(logging.INFO)
        threading.Thread(target=self._link.listen, name="holdfast link", daemon=True).start()
        while (call := self._link.calls.get()) is not None:
            port = LinkPort(self._link, call.claimed, self._sessions)
            self._link.begin(port)
            self._log.begin(port)
            ending = self._run(call, port)
            self._log.end()
            self._link.end(ending)

    def _run(self, call: wire.Call, port: LinkPort) -> wire.Ending:
        try:
            return self._ending(call, port)
        except BaseException as error:
            return endings.raised(error, call.claimed)

    def _ending(self, call: wire.Call, port: LinkPort) -> wire.Ending:
        handler = self._ready(call, port)
        self._link.tell(wire.Begun())
        return endings.answered(call.claimed.kind, handler())

    def _ready(self, call: wire.Call, port: LinkPort) -> Callable[[], Any]:
        if call.main is not None and not self._main_loaded:
            spawn.prepare(call.main)
            self._main_loaded = True
        found = getattr(importlib.import_module(call.module), call.name)
        claimed = call.claimed
        function, signature = (
            (found.function, found.signature)
            if isinstance(found, Handler)
            else (found, Signature(claimed.kind, found, Job))
        )
        arguments = signature.decode(claimed.args)
        if signature.job_parameter is not None:
            arguments[signature.job_parameter] = Job(claimed, port)
        return lambda: function(**arguments)
