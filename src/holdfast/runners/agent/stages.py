"""How far an assignment has come on its runner, and why it is ended there."""

from __future__ import annotations

from enum import IntEnum

# The states of an assignment in a sync.
ACCEPTED, RUNNING, ENDED = "accepted", "running", "ended"


class Cause(IntEnum):
    """Why an assignment is ended from outside; a stronger cause that comes later counts."""

    CANCEL = 1
    TIMEOUT = 2
    RELEASE = 3
    LOST = 4


class Phase(IntEnum):
    """What there is of an assignment that could still be ended: its program, its files, or its log alone."""

    PROGRAM = 1
    FILES = 2
    LOG = 3
