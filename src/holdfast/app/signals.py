"""A signal as a caller gives it."""

from __future__ import annotations

from typing import Any

from holdfast.app.options import checked_text
from holdfast.app.signature import json_text, within
from holdfast.errors import InputInvalid
from holdfast.store import signals
from holdfast.store.statement import Statement


def signal_statement(run_id: int, name: str, payload: Any, key: str | None) -> Statement[int]:
    """Return what sends a signal; raises `OptionInvalid`, `InputInvalid`, `PayloadTooLarge`."""
    checked_text("name", name, most=200)
    if key is not None:
        checked_text("key", key)
    text = json_text(payload, lambda problem: InputInvalid(f"the payload of signal {name!r}: {problem}"))
    return signals.send_signal(run_id, name, within(text, f"the payload of signal {name!r}"), key)
