"""What handlers give, as the database keeps it: results and checkpoints as text."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from holdfast.app.signature import json_text, within
from holdfast.errors import InputInvalid, OptionInvalid, StateConflict
from holdfast.model.checkpoint import Checkpoint
from holdfast.rules.outcome import storable


def result_text(kind: str, result: Any) -> str | None:
    """Return a handler's result as JSON text; raises `InputInvalid` or `PayloadTooLarge`."""
    if result is None:
        return None
    text = json_text(
        result, lambda problem: InputInvalid(f"the result of {kind!r} cannot be stored: {problem}")
    )
    return within(text, f"the result of {kind!r}")


def checkpoint_text(state: Any) -> str:
    """Return a checkpoint as JSON text; raises `InputInvalid` or `PayloadTooLarge`."""
    text = json_text(state, lambda problem: InputInvalid(f"the checkpoint cannot be stored: {problem}"))
    return within(text, "checkpoint")


def checkpoint_state(job_id: int, saved: Checkpoint, version: int) -> Any:
    """Return the state that is in a checkpoint; raises `StateConflict` where it is newer than *version*."""
    if saved.version > version:
        state = f"at checkpoint version {saved.version}, newer than this handler's {version}"
        raise StateConflict(job_id, action="resumed", state=state)
    return msgspec.json.decode(saved.data)


class _Reasoned(Protocol):
    """What a handler or an engine says of an attempt, with a reason in one line."""

    @property
    def reason(self) -> str: ...


def reason_text(answer: _Reasoned) -> str:
    """Return the reason of an answer as it can be stored; raises `OptionInvalid`."""
    return kept_text(f"{type(answer).__name__}.reason", answer.reason)


def kept_text(option: str, text: object) -> str:
    """Return *text* as it can be stored; raises `OptionInvalid` where it is none."""
    if not isinstance(text, str):
        raise OptionInvalid(option, text, "give a string")
    return storable(text)
