"""A workflow: a handler whose progress is remembered, so that it goes on where it was."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

import msgspec

from holdfast.app.handler import Handler, JobRequest, Policy, function_of, is_async
from holdfast.errors import InputInvalid, OptionInvalid

P = ParamSpec("P")
R = TypeVar("R")

# Separates a workflow's name from its version in the kind of its jobs.
VERSION_MARK = "@"


class Workflow(Handler[P, Awaitable[R]]):
    """A registered workflow.  Its first parameter is the `Run`; ``.job(…)`` takes the others.

    A version is part of the kind (``fulfil@2``), so only workers that know it claim such runs.
    *also* are kinds of older versions that this code can go on with.
    """

    def __init__(
        self, function: Callable[..., Awaitable[R]], kind: str, policy: Policy, also: tuple[str, ...] = ()
    ) -> None:
        function = function_of(function)
        if not is_async(function):
            msg = f"workflow {kind!r} is no `async def`: a run has to await its steps"
            raise InputInvalid(msg)
        self.run_parameter = _first_parameter(function, kind)
        super().__init__(function, kind, policy)
        if not _may_be_run(self.signature.job_hint):
            name = self.run_parameter
            msg = f"workflow {kind!r} takes {name!r} first, which is no holdfast.Run: that has to come first"
            raise InputInvalid(msg)
        self.also = also

    def _injected(self) -> str:
        return self.run_parameter

    def job(self, /, *args: Any, **kwargs: Any) -> JobRequest:
        """Return a request for a run with these arguments; raises `ArgumentsInvalid`."""
        return msgspec.structs.replace(super().job(*args, **kwargs), is_run=True)

    def __repr__(self) -> str:
        return f"<Workflow {self.kind}>"


def versioned(name: str, version: str | None) -> str:
    """Return the kind of a workflow's version; raises `OptionInvalid`."""
    if version is None:
        return name
    if not isinstance(version, str) or not version or VERSION_MARK in version:
        raise OptionInvalid("version", version, f"give a text that is not empty, without {VERSION_MARK!r}")
    return f"{name}{VERSION_MARK}{version}"


def unversioned(kind: str) -> str:
    """Return the name of a workflow, whichever of its versions *kind* is."""
    return kind.partition(VERSION_MARK)[0]


def _first_parameter(function: Callable[..., Any], kind: str) -> str:
    names = list(inspect.signature(function).parameters)
    if not names:
        msg = f"workflow {kind!r} takes no parameter: the first one is its holdfast.Run"
        raise InputInvalid(msg)
    return names[0]


def _may_be_run(hint: Any) -> bool:
    # Runs are made in a layer above this one, so it is known here by name alone.
    return hint is Any or any(one.__name__ == "Run" for one in getattr(hint, "__mro__", ()))
