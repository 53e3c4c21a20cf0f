"""Errors as values: what a step raised, as it is recorded and as it is raised again."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast import errors
from holdfast.app.signature import json_text
from holdfast.errors import HoldfastError, InputInvalid, StepFailed
from holdfast.rules.outcome import storable
from holdfast.rules.telling import RemoteError, text_of

MAX_PART_BYTES = 16 * 1024


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as it is recorded; its arguments and attributes where JSON can hold them."""

    type: str
    message: str
    args: list[Any] | None = None
    attributes: dict[str, Any] = {}


def recorded(error: BaseException) -> str:
    """Return an error as JSON text, whatever application it comes from."""
    if isinstance(error, RemoteError):
        return error.record
    kind = type(error)
    plain = kind.__module__ == "builtins"
    name = kind.__qualname__ if plain else f"{kind.__module__}.{kind.__qualname__}"
    message = storable(text_of(error))
    args, attributes = _parts(list(error.args)), {} if plain else _attributes(error)
    return msgspec.json.encode(Told(name, message, args, attributes)).decode()


def recorded_text(name: str, message: str) -> str:
    """Return as JSON text an error of which nothing but this can be told."""
    return msgspec.json.encode(Told(name, message)).decode()


class Failures:
    """Builds errors from their records: built-in ones, Holdfast's own, and those that were registered.

    An error is built from its recorded form also where it has just been raised, so that a replay meets
    exactly what the first time met.
    """

    def __init__(self, known: Mapping[str, type[Exception]]) -> None:
        self._known = known

    def rebuilt(self, step: str, text: str) -> Exception:
        """Return the error that *text* tells of, or `StepFailed` where its type is not known."""
        told = msgspec.json.decode(text, type=Told)
        found = self._found(told.type)
        if found is None or (told.args is None and not told.attributes):
            return StepFailed(step, told.type, told.message)
        # Arguments that are no data are lost; what the error said is not.
        args = [told.message] if told.args is None else told.args
        try:
            if found.__module__ == "builtins":
                return found(*args)
            error = found.__new__(found, *args)
        except Exception:
            # Some built-in types take arguments that JSON has not; the text says enough.
            return StepFailed(step, told.type, told.message)
        error.args = tuple(args)
        error.__dict__.update(told.attributes)
        return error

    def _found(self, name: str) -> type[Exception] | None:
        own = name.removeprefix("holdfast.errors.")
        found = self._known.get(name) or getattr(builtins, name, None) or getattr(errors, own, None)
        if not isinstance(found, type) or not issubclass(found, Exception):
            return None
        if found.__module__ == "holdfast.errors" and not issubclass(found, HoldfastError):
            return None
        return found


def _parts(args: list[Any]) -> list[Any] | None:
    return args if _fits(args) else None


def _attributes(error: BaseException) -> dict[str, Any]:
    return {name: value for name, value in vars(error).items() if not name.startswith("__") and _fits(value)}


def _fits(value: Any) -> bool:
    try:
        return len(json_text(value, InputInvalid)) <= MAX_PART_BYTES
    except InputInvalid:
        return False
