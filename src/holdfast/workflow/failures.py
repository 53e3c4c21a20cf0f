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
from holdfast.rules.telling import RemoteError, text_of, untellable

MAX_PART_BYTES = 16 * 1024


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as it is recorded; its arguments and attributes where JSON can hold them.

    *bases* are the classes that its own one is derived from, the nearest first, below `Exception`.
    """

    type: str
    message: str
    args: list[Any] | None = None
    attributes: dict[str, Any] = {}
    bases: list[str] = []


def recorded(error: BaseException) -> str:
    """Return an error as JSON text, whatever application it comes from."""
    if isinstance(error, RemoteError):
        return error.record
    try:
        return json_text(_told(error), InputInvalid)
    except Exception as met:
        # A class of the application's own, asked for its attributes.
        return recorded_text(type(error).__name__, untellable(error, met))


def recorded_text(name: str, message: str) -> str:
    """Return as JSON text an error of which nothing but this can be told."""
    return msgspec.json.encode(Told(name, message)).decode()


class Failures:
    """Builds errors from their records: built-in ones, Holdfast's own, and those that were registered.

    An error of another class is built as the nearest of its bases that is one of these.

    An error is built from its recorded form also where it has just been raised, so that a replay meets
    exactly what the first time met.
    """

    def __init__(self, known: Mapping[str, type[Exception]]) -> None:
        self._known = known

    def rebuilt(self, step: str, text: str) -> Exception:
        """Return the error that *text* tells of, or `StepFailed` where no type of it is known."""
        told = msgspec.json.decode(text, type=Told)
        # Who has registered a class wants to catch all that is derived from it, whatever else that is.
        bases = sorted(told.bases, key=lambda base: base not in self._known)
        ways: list[tuple[str, list[Any]]] = [(base, [f"{told.type}: {told.message}"]) for base in bases]
        if told.args is not None or told.attributes:
            # Arguments that are no data are lost; what the error said is not.
            ways.insert(0, (told.type, [told.message] if told.args is None else told.args))
        for name, args in ways:
            error = self._built(name, args, told.attributes)
            if error is not None:
                return error
        return StepFailed(step, told.type, told.message)

    def _built(self, name: str, args: list[Any], attributes: dict[str, Any]) -> Exception | None:
        """Return an error of that class, None where it is not known or takes arguments that JSON has not."""
        found = self._found(name)
        if found is None:
            return None
        try:
            if found.__module__ == "builtins":
                error = found(*args)
            else:
                error = found.__new__(found, *args)
                error.args = tuple(args)
        except Exception:
            return None
        error.__dict__.update(attributes)
        return error

    def _found(self, name: str) -> type[Exception] | None:
        own = name.removeprefix("holdfast.errors.")
        found = self._known.get(name) or getattr(builtins, name, None) or getattr(errors, own, None)
        if not isinstance(found, type) or not issubclass(found, Exception):
            return None
        if issubclass(found, (StopIteration, StopAsyncIteration)):
            # No coroutine can raise it: Python makes another error of that.
            return None
        if found.__module__ == "holdfast.errors" and not issubclass(found, HoldfastError):
            return None
        return found


def _told(error: BaseException) -> Told:
    kind = type(error)
    message = storable(text_of(error))
    attributes = {} if kind.__module__ == "builtins" else _attributes(error)
    return Told(_name(kind), message, _parts(list(error.args)), attributes, _bases(kind))


def _name(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _bases(kind: type[BaseException]) -> list[str]:
    own = (one for one in kind.__mro__[1:] if one is not Exception and issubclass(one, Exception))
    return [_name(one) for one in own]


def _parts(args: list[Any]) -> list[Any] | None:
    return args if _fits(args) else None


def _attributes(error: BaseException) -> dict[str, Any]:
    return {name: value for name, value in vars(error).items() if not name.startswith("__") and _fits(value)}


def _fits(value: Any) -> bool:
    try:
        return len(json_text(value, InputInvalid)) <= MAX_PART_BYTES
    except InputInvalid:
        return False
