"""Checks arguments against a handler's signature, and turns them into JSON and back.

msgspec does the work: dataclasses, Structs, enums, datetimes, UUIDs and the like are understood as
they are; pydantic models are, where pydantic is installed.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from holdfast.errors import ArgumentsInvalid, InputInvalid, PayloadTooLarge
from holdfast.rules.nesting import MAX_DEPTH, inner_parts, is_too_deep, may_be_too_deep

# What arguments, results, checkpoints and the payloads of signals may come to, as JSON.
MAX_DATA_BYTES = 1024 * 1024
NUL = "\\u0000"
TOO_DEEP = f"it is nested deeper than {MAX_DEPTH} levels"


class Signature:
    """What a handler takes: its parameters without the injected job.

    *job_parameter* is the name under which the handler wants its `Job`, or None: *injected*, or the one
    of type *job_type*.  *job_hint* is the type that is promised for it, Any where none is.
    """

    def __init__(
        self, kind: str, function: Callable[..., Any], job_type: type, injected: str | None = None
    ) -> None:
        self.kind, self._what = kind, f"arguments of {kind!r}"
        hints = _hints(kind, function)
        by_type = next((name for name, hint in hints.items() if plain_hint(hint) is job_type), None)
        self.job_parameter = injected or by_type
        self.job_hint = plain_hint(hints.get(self.job_parameter or "", Any))
        whole = inspect.signature(function)
        given = [one for one in whole.parameters.values() if one.name != self.job_parameter]
        self._bind = whole.replace(parameters=given)
        wanted = [self._field(parameter, hints) for parameter in given]
        self.names = tuple(field[0] for field in wanted)
        struct = msgspec.defstruct("Arguments", wanted, forbid_unknown_fields=True, kw_only=True, gc=False)
        self._struct = struct
        self._decoder = msgspec.json.Decoder(struct, dec_hook=_from_pydantic)
        self._result = hints.get("return", Any)

    def _field(self, parameter: inspect.Parameter, hints: dict[str, Any]) -> tuple[Any, ...]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            msg = (
                f"handler of {self.kind!r} takes {parameter}: name each parameter, so that it can be checked"
            )
            raise InputInvalid(msg)
        hint = hints.get(parameter.name, Any)
        if parameter.default is parameter.empty:
            return (parameter.name, hint)
        default = parameter.default
        return (parameter.name, hint, msgspec.field(default_factory=lambda: default))

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the arguments as JSON text; raises `ArgumentsInvalid` or `PayloadTooLarge`."""
        arguments = self._bound(args, kwargs) if args else kwargs
        try:
            text = json_text(arguments, self._refused)
            self._struct_from(within(text, self._what))
        except (ArgumentsInvalid, PayloadTooLarge):
            # Python says it better where an argument is missing or unknown.
            self._bound(args, kwargs)
            raise
        return text

    def _refused(self, problem: str) -> ArgumentsInvalid:
        return ArgumentsInvalid(self.kind, problem)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        # All by place needs no binding.
        if not kwargs and len(args) == len(self.names):
            return dict(zip(self.names, args, strict=True))
        try:
            return self._bind.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise ArgumentsInvalid(self.kind, str(error)) from None

    def decode(self, text: str) -> dict[str, Any]:
        """Return the arguments by name; raises `ArgumentsInvalid`."""
        return msgspec.structs.asdict(self._struct_from(text))

    def _struct_from(self, text: str) -> Any:
        try:
            return self._decoder.decode(text)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise ArgumentsInvalid(self.kind, str(error)) from None

    def result(self, text: str | None) -> Any:
        """Return a stored result as the type that the handler promises."""
        return None if text is None else as_promised(text, self._result)


def as_promised(text: str, wanted: Any) -> Any:
    """Return a stored result as the type that a function promises, or as plain data where it does not fit."""
    try:
        return msgspec.json.decode(text, type=wanted, dec_hook=_from_pydantic)
    except (msgspec.DecodeError, TypeError):
        # Stored by an older function, or a return type that is not data: give the plain JSON.
        return msgspec.json.decode(text)


def json_text(value: Any, refuse: Callable[[str], Exception]) -> str:
    """Return *value* as JSON text that PostgreSQL can keep; raises what *refuse* makes of the problem."""
    try:
        text = msgspec.json.encode(value, enc_hook=_to_builtins).decode()
        flaw = _flaw(value, text)
    except RecursionError:
        raise refuse(TOO_DEEP) from None
    except UnicodeError:
        raise refuse("it holds half of a surrogate pair: it is no valid Unicode") from None
    except (TypeError, ValueError, OverflowError) as error:
        # Python's own advice for an integer of thousands of digits would weaken the whole process.
        endless = "integer string conversion" in str(error)
        raise refuse("it holds an endless integer: send it as a string" if endless else str(error)) from None
    if flaw is not None:
        raise refuse(flaw)
    return text


def within(text: str, what: str, limit: int = MAX_DATA_BYTES) -> str:
    """Return *text*; raises `PayloadTooLarge` where it has more than *limit* bytes."""
    # A character has four bytes at most, so most texts need not be encoded for that.
    if len(text) > limit // 4 and (size := len(text.encode())) > limit:
        raise PayloadTooLarge(what, size=size, limit=limit)
    return text


def _flaw(value: Any, text: str) -> str | None:
    """Return what is wrong with *text*, which is *value* as JSON: what PostgreSQL or a reader would refuse.

    The text says cheaply whether *value* has to be walked at all.
    """
    if NUL in text and NUL in text.replace("\\\\", ""):
        return (
            "it holds a NUL character, which PostgreSQL cannot store: remove it or encode the data as base64"
        )
    if "null" not in text and not may_be_too_deep(text):
        return None
    plain = msgspec.to_builtins(value, enc_hook=_to_builtins)
    return TOO_DEEP if is_too_deep(plain) else _infinity(plain)


def _infinity(data: Any) -> str | None:
    """Return what is wrong with a number that msgspec writes as null, without a word."""
    todo = [data]
    while todo:
        part = todo.pop()
        if isinstance(part, float) and not math.isfinite(part):
            return f"it holds the number {part}, which JSON does not know: send None or a string"
        todo.extend(inner_parts(part))
    return None


def _hints(kind: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        msg = f"the type hints of the handler of {kind!r} cannot be resolved: {error}"
        raise InputInvalid(msg) from error


def plain_hint(hint: Any) -> Any:
    """Return the type that *hint* wraps: itself, or that of ``Annotated[type, …]`` or of ``type | None``."""
    parts = get_args(hint)
    if get_origin(hint) is Annotated:
        return plain_hint(parts[0])
    if get_origin(hint) in (Union, UnionType):
        types = [part for part in parts if part is not NoneType]
        return plain_hint(types[0]) if len(types) == 1 else hint
    return hint


def _to_builtins(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    msg = f"a value of type {type(value).__name__} cannot be turned into JSON"
    raise TypeError(msg)


def _from_pydantic(wanted: type, value: Any) -> Any:
    validate = getattr(wanted, "model_validate", None)
    if validate is not None:
        return validate(value)
    if isinstance(wanted, type) and isinstance(value, wanted):
        return value
    msg = f"type {getattr(wanted, '__name__', wanted)} cannot be read from JSON"
    raise ValueError(msg)
