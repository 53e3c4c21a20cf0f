"""Options that several commands share, written once: a function takes them, and gives what they mean."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

Command = Callable[..., None]


def taking(options: Callable[..., Any], *, into: str) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the keywords of *options* in the place of its parameter *into*.

    The command gets what *options* makes of them.  Typer reads names, help and defaults off the signature.
    """
    offered = inspect.signature(options, eval_str=True).parameters

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)

        @functools.wraps(command)
        def run(*args: Any, **given: Any) -> None:
            typed = {name: given.pop(name) for name in offered}
            command(*args, **{into: options(**typed)}, **given)

        kept = [one for one in own.parameters.values() if one.name != into]
        positional = [one for one in kept if one.kind is not one.KEYWORD_ONLY]
        keywords = [one for one in kept if one.kind is one.KEYWORD_ONLY]
        parameters = [*positional, *offered.values(), *keywords]
        run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
        return run

    return decorate
