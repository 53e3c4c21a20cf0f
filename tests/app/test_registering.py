"""What a function may look like that is registered, and what is refused at once."""

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, Optional

import pytest

import holdfast

SPELLINGS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda wanted: wanted,
    "or None": lambda wanted: wanted | None,
    "None or": lambda wanted: None | wanted,
    "Optional": lambda wanted: Optional[wanted],  # noqa: UP045 - the old spelling is what is tried
    "Annotated": lambda wanted: Annotated[wanted, "of the queue"],
    "Annotated or None": lambda wanted: Annotated[wanted, "of the queue"] | None,
    "Annotated around": lambda wanted: Annotated[wanted | None, "of the queue"],
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_job_is_injected_however_its_type_is_spelled(spelling: str) -> None:
    """It is no argument of an enqueue, and the handler gets it under its name."""

    async def greet(job: Any = None, name: str = "Ada") -> None: ...

    greet.__annotations__["job"] = SPELLINGS[spelling](holdfast.Job)
    handler = holdfast.App().job(greet)
    assert handler.signature.job_parameter == "job"
    assert handler.signature.names == ("name",)
    assert handler.job("Bo").args == '{"name":"Bo"}'


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_run_may_be_spelled_as_a_job_may(spelling: str) -> None:
    """A workflow is not refused because its first parameter says more than `Run`."""

    async def plan(run: Any, amount: int) -> None: ...

    plan.__annotations__["run"] = SPELLINGS[spelling](holdfast.Run)
    workflow = holdfast.App().workflow(plan)
    assert workflow.job(3).args == '{"amount":3}'


async def greet(name: str, times: int) -> None:
    """Nobody runs it here."""


class Greeter:
    """Can be called like a function."""

    async def __call__(self, name: str) -> None:
        """Nobody runs it here."""


@pytest.mark.parametrize("register", ["job", "workflow"])
@pytest.mark.parametrize("kind", [None, "greet"])
@pytest.mark.parametrize(
    "thing", [functools.partial(greet, times=2), Greeter(), "greet"], ids=lambda thing: type(thing).__name__
)
def test_what_is_no_function_is_refused_with_a_remedy(register: str, kind: str | None, thing: Any) -> None:
    """It has neither a name for a kind nor parameters that can be checked."""
    app = holdfast.App()
    what = type(thing).__name__
    with pytest.raises(holdfast.InputInvalid, match=f"of type {what} can be no handler: register a function"):
        getattr(app, register)(kind=kind)(thing)
    assert not app.handlers


def count(to: int) -> Iterator[int]:
    """A generator: to call it runs nothing."""
    yield to


async def count_slowly(_run: holdfast.Run, to: int) -> AsyncIterator[int]:
    """An async generator: it cannot even be awaited."""
    yield to


@pytest.mark.parametrize("register", ["job", "workflow"])
@pytest.mark.parametrize("kind", [None, "counting"])
@pytest.mark.parametrize("function", [count, count_slowly])
def test_a_generator_is_refused_by_its_name(register: str, kind: str | None, function: Any) -> None:
    """No call of it would ever run it."""
    app = holdfast.App()
    with pytest.raises(holdfast.InputInvalid, match=f"handler '{function.__name__}' has a `yield`.*return"):
        getattr(app, register)(kind=kind)(function)
    assert not app.handlers
