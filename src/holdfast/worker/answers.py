"""What handlers give, as the database keeps it: results, checkpoints and errors as text."""

from __future__ import annotations

import traceback
from typing import Any

from holdfast.app.signature import json_text
from holdfast.errors import InputInvalid, PayloadTooLarge

MAX_RESULT_BYTES = 1024 * 1024
MAX_CHECKPOINT_BYTES = 1024 * 1024


def result_text(kind: str, result: Any) -> str | None:
    """Return a handler's result as JSON text; raises `InputInvalid` or `PayloadTooLarge`."""
    if result is None:
        return None
    text = json_text(
        result, lambda problem: InputInvalid(f"the result of {kind!r} cannot be stored: {problem}")
    )
    return _within(text, f"the result of {kind!r}", MAX_RESULT_BYTES)


def checkpoint_text(state: Any) -> str:
    """Return a checkpoint as JSON text; raises `InputInvalid` or `PayloadTooLarge`."""
    text = json_text(state, lambda problem: InputInvalid(f"the checkpoint cannot be stored: {problem}"))
    return _within(text, "checkpoint", MAX_CHECKPOINT_BYTES)


def _within(text: str, what: str, limit: int) -> str:
    if (size := len(text.encode())) > limit:
        raise PayloadTooLarge(what, size=size, limit=limit)
    return text


def one_line(error: BaseException) -> str:
    """Return an error in one line: its type and its text."""
    if isinstance(error, RemoteError):
        return error.line
    # Not str(error): a handler's own error class may fail at that.
    text = " ".join(str(traceback.TracebackException(type(error), error, None)).split())
    return f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__


def told(error: BaseException) -> str:
    """Return all that is known of an error: its traceback."""
    if isinstance(error, RemoteError):
        return error.trace
    return "".join(traceback.format_exception(error)).strip()


class RemoteError(Exception):
    """What a handler raised in a child process: told in one line and with its traceback, as it was there."""

    def __init__(self, line: str, trace: str) -> None:
        super().__init__(line)
        self.line, self.trace = line, trace
