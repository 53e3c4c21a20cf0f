"""The ``post-receive`` hook: hands a push in and never stands in its way.

git starts it in the bare repository after the refs have moved, with one line for each of them.  Whatever
goes wrong here, the push stands, so the hook always ends with 0: what the database does not take is
kept on disk for the sweep.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from uuid import uuid4

import psycopg

from examples.forge import database, pushes, spool
from examples.forge.pushes import Push
from examples.forge.settings import load

# What the client may have to wait for us, in seconds.
BUDGET = 5
PUSHER = "FORGE_PUSHER"


class OutOfTime(Exception):
    """The budget is used up."""


def main() -> int:
    """Read the push from standard input and hand it in; always answers 0."""
    settings_file, repository_id = Path(sys.argv[1]), int(sys.argv[2])
    # Not splitlines(): a ref's name may hold what Unicode takes for the end of a line.
    lines = sys.stdin.buffer.read().decode("utf-8", "backslashreplace").split("\n")
    push = Push(
        id=str(uuid4()),
        repository_id=repository_id,
        pusher=os.environ.get(PUSHER) or "somebody",
        pushed_at=datetime.now(UTC),
        updates=pushes.updates_from(lines),
    )
    try:
        hand_in(settings_file, push)
    except (psycopg.Error, OSError, ValueError, TypeError, KeyError, OutOfTime) as error:
        _keep(push, error)
    return 0


def hand_in(settings_file: Path, push: Push) -> None:
    """Write the events and their jobs in one transaction, within the budget."""
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.setitimer(signal.ITIMER_REAL, BUDGET)
    try:
        with database.connect(load(settings_file).database_url, connect_timeout=BUDGET) as connection:
            pushes.record(connection, push)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _out_of_time(_signal: int, _frame: FrameType | None) -> None:
    msg = f"the database did not answer within {BUDGET} s"
    raise OutOfTime(msg)


def _keep(push: Push, error: Exception) -> None:
    # A commit whose answer was lost may have happened: the push's id keeps the sweep from doing it twice.
    # Its name is all that the pusher is told of the error: the rest may speak of our hosts and users.
    reason = type(error).__name__
    try:
        spool.keep(Path.cwd(), push)
    except OSError as trouble:
        # The refs have moved and their reflogs say so; there is nobody left here to tell but the pusher.
        sys.stderr.write(f"forge: this push could not be recorded ({reason}; {trouble}): tell an operator\n")
    else:
        sys.stderr.write(f"forge: the push is accepted and will be processed later ({reason})\n")


if __name__ == "__main__":
    sys.exit(main())
