"""A coroutine that has run up to its first wait and is awaited from there."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any


class EagerCoroutine:
    """Await it to run *coroutine* on, which has asked its loop for *wish* and not been answered yet.

    It passes on what comes in and goes out, as ``yield from`` does (PEP 380).
    """

    __slots__ = ("_coroutine", "_wish")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], wish: Any) -> None:
        self._coroutine, self._wish = coroutine, wish

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine, wish = self._coroutine, self._wish
        try:
            while True:
                try:
                    answer = yield wish
                except GeneratorExit:
                    coroutine.close()
                    raise
                except BaseException as error:
                    wish = coroutine.throw(error)
                else:
                    wish = coroutine.send(answer)
        except StopIteration as done:
            return done.value
