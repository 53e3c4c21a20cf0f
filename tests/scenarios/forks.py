"""A program that imports everything once and then forks a process for every line on its stdin.

    python -m tests.scenarios.forks

A line is the settings of `fulfilment.work` as JSON, of `bustle.work` under its name, or of `command`.  It
answers each with the id of the process, and tells of every end.
"""

import asyncio
import ctypes
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from contextlib import suppress
from typing import Any

# The commands import the other two where they need them, which is too late for what is forked.
from holdfast.cli import main as cli
from holdfast.cli import remote, web
from tests.scenarios import bustle, fulfilment

IMPORTED = (remote, web)
CLONE_NEWNET = 0x40000000


def tell(**facts: Any) -> None:
    """Write one line to stdout."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def fork(settings: dict[str, Any]) -> None:
    """Start a worker process; this one has neither threads nor connections, so there is nothing to break."""
    pid = os.fork()
    if pid:
        tell(forked=pid)
        return
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        live(settings)
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 1)
    except BaseException:
        traceback.print_exc()
    finally:
        # The parent's buffers and exit handlers are none of the child's business.
        os._exit(1)


def live(settings: dict[str, Any]) -> None:
    """Be the process that the settings ask for."""
    if "arguments" in settings:
        command(**settings)
    elif "bustle" in settings:
        asyncio.run(bustle.work(**settings["bustle"]))
    else:
        asyncio.run(fulfilment.work(settings))


def command(
    arguments: list[str], variables: dict[str, str], folder: str, log: str, namespace: str | None
) -> None:
    """Be ``holdfast`` with these *arguments* and *variables* in *folder*; what it says goes to *log*.

    *namespace* is the network in which it lives, where that is not the test's.
    """
    if namespace is not None:
        enter(namespace)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    words = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number, file in ((0, nothing), (1, words), (2, words)):
        os.dup2(file, number)
    cli.app(arguments)


def enter(namespace: str) -> None:
    """Leave this machine's network for another one."""
    with open(f"/run/netns/{namespace}", "rb") as door:
        if ctypes.CDLL(None, use_errno=True).setns(door.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"namespace {namespace} cannot be entered")


def bury() -> None:
    """Tell of every process that has ended."""
    with suppress(ChildProcessError):
        while (end := os.waitpid(-1, os.WNOHANG))[0]:
            tell(ended=end[0], code=os.waitstatus_to_exitcode(end[1]))


class Orders:
    """What comes in on stdin; a buffered reader would keep a second line to itself."""

    def __init__(self) -> None:
        self._begun = b""

    def take(self) -> bool:
        """Fork for every whole line that has come; False once there will be no more."""
        found = os.read(sys.stdin.fileno(), 65536)
        *lines, self._begun = (self._begun + found).split(b"\n")
        for line in lines:
            fork(json.loads(line))
        return bool(found)


def main() -> None:
    """Fork until stdin ends."""
    orders = Orders()
    ends, bell = socket.socketpair()
    for end in (ends, bell):
        end.setblocking(False)
    signal.set_wakeup_fd(bell.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    selector.register(ends, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is ends:
                ends.recv(4096)
                bury()
            elif not orders.take():
                return


if __name__ == "__main__":
    main()
