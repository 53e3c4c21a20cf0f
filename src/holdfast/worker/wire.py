"""What a worker and its child processes say to each other: JSON in frames, and nothing is ever unpickled.

A frame is four bytes of length, then that many bytes of one message.  The parent speaks first (`Setup`),
then call by call: `Call`, `Begun`, any number of wishes (of which some want an `Answer`), and one ending.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from holdfast import errors
from holdfast.errors import HoldfastError
from holdfast.model.job import ClaimedJob
from holdfast.model.problem import facts_from, facts_of

# Results, checkpoints and log lines are checked against limits far below.
LARGEST_FRAME = 64 * 1024 * 1024

_LENGTH = struct.Struct("!I")
HEADER_BYTES = _LENGTH.size


class Setup(msgspec.Struct, tag="setup"):
    """The first message to a child; *database* are the fields of the parent's `DatabaseConfig`.

    *level* is the parent's level of the standard logging module.
    """

    database: dict[str, Any]
    level: int


class Call(msgspec.Struct, tag="call"):
    """Run the handler *name* of *module*; *main* says how to load ``__main__`` where that is the module."""

    module: str
    name: str
    claimed: ClaimedJob
    main: dict[str, Any] | None = None


class Problem(msgspec.Struct):
    """One of Holdfast's own errors on its way through the pipe."""

    name: str
    text: str
    facts: dict[str, Any]


class Answer(msgspec.Struct, tag="answer"):
    """What came of the wish with that number."""

    wish: int
    value: Any = None
    problem: Problem | None = None


class Begun(msgspec.Struct, tag="begun"):
    """The handler is imported and begins: its time runs from now."""


class Progress(msgspec.Struct, tag="progress"):
    """Wish: keep the newest progress."""

    fraction: float
    note: str | None


class Line(msgspec.Struct, tag="line"):
    """Wish: keep a line of the log."""

    level: int
    text: str


class Save(msgspec.Struct, tag="save"):
    """Wish with an answer: save a checkpoint, *state* being JSON text."""

    state: str
    version: int
    wish: int = 0


class Load(msgspec.Struct, tag="load"):
    """Wish with an answer: load the checkpoint."""

    version: int
    wish: int = 0


class Delete(msgspec.Struct, tag="delete"):
    """Wish with an answer: forget the checkpoint."""

    wish: int = 0


class OpenUp(msgspec.Struct, tag="open_up"):
    """Wish with an answer: the attempt's own transaction is about to begin."""

    wish: int = 0


class Settle(msgspec.Struct, tag="settle"):
    """Wish with an answer: write what was logged, for the attempt's own transaction is about to end it."""

    wish: int = 0


class Settled(msgspec.Struct, tag="settled"):
    """The attempt's own transaction is over."""

    committed: bool


class Returned(msgspec.Struct, tag="returned"):
    """Ending: the handler returned *result* (JSON text)."""

    result: str | None = None


class Snoozed(msgspec.Struct, tag="snoozed"):
    """Ending: the handler returned a `Snooze`."""

    seconds: float
    reason: str


class Cancelled(msgspec.Struct, tag="cancelled"):
    """Ending: the handler returned a `Cancel`."""

    reason: str


class Retried(msgspec.Struct, tag="retried"):
    """Ending: the handler returned a `Retry`."""

    seconds: float | None
    reason: str


class Raised(msgspec.Struct, tag="raised"):
    """Ending: the handler raised; *line*, *trace* and *record* are as they are told of any handler."""

    line: str
    trace: str
    record: str
    poison: bool = False
    lost: bool = False


Wanting = Save | Load | Delete | OpenUp | Settle
Ending = Returned | Snoozed | Cancelled | Retried | Raised
FromParent = Setup | Call | Answer
FromChild = Begun | Progress | Line | Wanting | Settled | Ending

_from_parent: msgspec.json.Decoder[FromParent] = msgspec.json.Decoder(FromParent)
_from_child: msgspec.json.Decoder[FromChild] = msgspec.json.Decoder(FromChild)


def frame(message: FromParent | FromChild) -> bytes:
    """Return *message* as it goes over the wire."""
    body = msgspec.json.encode(message)
    return _LENGTH.pack(len(body)) + body


def body_bytes(header: bytes) -> int:
    """Return how many bytes follow *header*; raises ValueError past 64 MiB, which nobody sends on purpose."""
    (length,) = _LENGTH.unpack(header)
    if length > LARGEST_FRAME:
        msg = f"a frame of {length:,} bytes is no message"
        raise ValueError(msg)
    return int(length)


def from_parent(body: bytes) -> FromParent:
    """Read a message in the child."""
    return _from_parent.decode(body)


def from_child(body: bytes) -> FromChild:
    """Read a message in the parent; raises ValueError for anything else."""
    return _from_child.decode(body)


def packed(error: HoldfastError) -> Problem:
    """Return an error for the wire: its type, its text and its plain facts."""
    return Problem(type(error).__name__, str(error), facts_of(error))


def unpacked(problem: Problem) -> HoldfastError:
    """Return the error that `packed` described, of the same type."""
    named = getattr(errors, problem.name, None)
    kind = named if isinstance(named, type) and issubclass(named, HoldfastError) else HoldfastError
    # Its own __init__ would build the text anew from parts that are in the text already.
    error: HoldfastError = kind.__new__(kind, problem.text)
    error.__dict__.update(facts_from(problem.facts))
    return error
