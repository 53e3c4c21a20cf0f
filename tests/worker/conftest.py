"""The same handler in every executor."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from tests.worker import handlers

EXECUTORS = ("loop", "thread", "process")


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> str:
    """Each executor in turn."""
    return str(request.param)


Single = Callable[..., holdfast.App]


@pytest.fixture
def single(executor: str) -> Single:
    """An app with one handler, kind "it", in the executor: ``single(handlers.add, max_attempts=2)``."""

    def make(function: Callable[..., Any], **options: Any) -> holdfast.App:
        app = holdfast.App()
        options = {"retry": handlers.SOON} | options
        app.job(kind="it", executor=executor, **options)(_fitting(function, executor))
        return app

    return make


def _fitting(function: Callable[..., Any], executor: str) -> Callable[..., Any]:
    """The function itself for threads and processes; on the loop its async twin, or a thin wrap."""
    if executor != "loop":
        return function
    twin = getattr(handlers, f"{function.__name__}_on_loop", None)
    if twin is not None:
        return twin  # type: ignore[no-any-return]

    @functools.wraps(function)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    assert inspect.iscoroutinefunction(wrapped)
    return wrapped
