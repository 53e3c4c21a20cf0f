"""How deep JSON may be nested."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# Far from the depth at which Python or PostgreSQL give up, wherever the JSON is read again.
MAX_DEPTH = 200


def may_be_too_deep(text: str) -> bool:
    """Tell cheaply whether JSON has so many brackets that its data have to be walked at all."""
    return len(text) > MAX_DEPTH and text.count("[") + text.count("{") > MAX_DEPTH


def is_too_deep(data: Any) -> bool:
    """Tell whether *data* are nested deeper than readers have to bear."""
    todo = [(data, 0)]
    while todo:
        part, depth = todo.pop()
        if depth > MAX_DEPTH:
            return True
        todo.extend((inner, depth + 1) for inner in inner_parts(part))
    return False


def inner_parts(data: Any) -> Iterable[Any]:
    """Return what a piece of JSON data consists of."""
    inner = data.values() if isinstance(data, dict) else data
    return inner if isinstance(inner, Iterable) and not isinstance(inner, str) else ()
