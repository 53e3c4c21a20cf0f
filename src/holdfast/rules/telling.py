"""Errors as text, and any text as a terminal may see it."""

from __future__ import annotations

import re
import traceback
from types import TracebackType

# Who calls handlers: their calls say nothing of an error, and each costs as much to tell as its own.
_CALLERS = ("holdfast.worker.", "holdfast.workflow.replay")
# All that may move the cursor, colour what follows or rename the window, C1 included; lines and tabs stay.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def shown(text: str) -> str:
    """Return *text* with escapes, as JSON knows them, for what a terminal would obey, whoever wrote it."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(error: BaseException) -> str:
    """Return an error in one line: its type and its text."""
    if isinstance(error, RemoteError):
        return error.line
    text = " ".join(text_of(error).split())
    return f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__


def told(error: BaseException) -> str:
    """Return all that is known of an error: its traceback, from the handler on."""
    if isinstance(error, RemoteError):
        return error.trace
    return "".join(traceback.format_exception(type(error), error, _from_handler(error))).strip()


def _from_handler(error: BaseException) -> TracebackType | None:
    """Return the traceback without the calls that led to the handler; all of it where they led to none."""
    entry = error.__traceback__
    while entry is not None and _module(entry).startswith(_CALLERS):
        entry = entry.tb_next
    return error.__traceback__ if entry is None or _module(entry).startswith("holdfast.") else entry


def _module(entry: TracebackType) -> str:
    return str(entry.tb_frame.f_globals.get("__name__"))


def text_of(error: BaseException) -> str:
    """Return the text of an error, also of one whose class fails at that."""
    return str(traceback.TracebackException(type(error), error, None))


def untellable(error: BaseException, met: Exception) -> str:
    """Return what is said of an error whose own class *met* another one when it was asked."""
    return f"{type(error).__name__}, which cannot be told of: that raises {type(met).__name__}"


class RemoteError(Exception):
    """What a handler raised in a child process, told as it was there: in one line, and with its traceback.

    *record* is what a run remembers of it, as JSON text.
    """

    def __init__(self, line: str, trace: str, record: str) -> None:
        super().__init__(line)
        self.line, self.trace, self.record = line, trace, record
