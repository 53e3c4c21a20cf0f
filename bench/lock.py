"""One run at a time on a machine: two would spoil each other's figures, in whatever folders they are."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PLACE = Path(tempfile.gettempdir()) / "holdfast-bench.lock"


class MachineTaken(Exception):
    """Somebody else measures on this machine; the message says who."""

    def __init__(self, holder: str) -> None:
        super().__init__(
            f"one run at a time, or each spoils the other's figures; this machine is taken by {holder}"
        )
        self.holder = holder


@contextmanager
def alone(what: str) -> Iterator[None]:
    """Have the machine inside the block, for *what*; raises `MachineTaken` at once where somebody has it.

    The kernel lets go of it when the process ends, however that comes about; programs that are started inside
    do not keep it.
    """
    # The file stays: whoever removed it would let a third one lock another file of the same name.
    with PLACE.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise MachineTaken(file.read().strip() or "a process that has just begun") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} since {time.strftime('%Y-%m-%d %H:%M:%S')}, for {what}\n")
        file.flush()
        yield
