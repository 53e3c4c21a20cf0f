"""What the log of step calls keeps of parameters and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.app.signature import json_text
from holdfast.errors import InputInvalid

MAX_SHOWN_BYTES = 16 * 1024
WITHHELD = '{"left_out":"it cannot be shown, or a redaction rule failed"}'


class Redactions:
    """Turns values into what is logged of them, by the application's rules."""

    def __init__(self, rules: Sequence[Callable[[str, Any], Any]]) -> None:
        self._rules = rules

    def parameters(self, step: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return what is logged of a call's arguments, as JSON text; what JSON cannot hold is described."""
        value = {"args": args, "kwargs": kwargs} if kwargs else {"args": args}
        return self.shown(step, value)

    def result(self, step: str, text: str | None) -> str | None:
        """Return what is logged of a result, which is JSON text."""
        if text is None or not self._rules:
            return None if text is None else _cut(text)
        return self.shown(step, msgspec.json.decode(text))

    def error(self, step: str, text: str) -> str:
        """Return what is logged of an error, which is JSON text: what it says may be what it was given."""
        return self.shown(step, msgspec.json.decode(text)) if self._rules else text

    def shown(self, step: str, value: Any) -> str:
        """Return what is logged of any value, as JSON text."""
        try:
            value = msgspec.to_builtins(value, enc_hook=repr)
            for rule in self._rules:
                value = rule(step, value)
            return _cut(json_text(value, InputInvalid))
        except Exception:
            # The door around a user's rule and a user's value: neither fails the step, and nothing leaks.
            return WITHHELD


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_BYTES else f'{{"left_out_bytes":{len(text)}}}'
