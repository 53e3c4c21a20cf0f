"""Errors of steps are caught by their classes, and by those that these are derived from."""

from __future__ import annotations

import json
import socket
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

import holdfast
from holdfast.workflow.failures import Failures, Told, recorded


class HouseError(Exception):
    """What an application registers."""


class Declined(HouseError):
    """What is derived from it, with a fact of its own."""

    def __init__(self, card: str) -> None:
        super().__init__(f"{card} was declined")
        self.card = card


class LateError(TimeoutError, HouseError):
    """Derived from a built-in class first."""


class Bare(ValueError):
    """Its argument is no data."""

    def __str__(self) -> str:
        return "bare"


class Answer(BaseModel):
    """What a service said, as an application keeps it."""

    code: int


class Answered(ConnectionError):
    """Carries a model as an attribute."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("it said no")
        self.answer = answer


class Closed(OSError):
    """Lets nobody ask it for anything."""

    def __getattr__(self, name: str) -> object:
        raise KeyError(name)


def rebuilt(error: Exception, *known: type[Exception]) -> Exception:
    """What a run meets where a step has raised *error*."""
    names = {f"{one.__module__}.{one.__qualname__}": one for one in known}
    return Failures(names).rebuilt("it", recorded(error))


def undecodable() -> UnicodeDecodeError:
    """A built-in error that has bytes for an argument."""
    return UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")


@pytest.mark.parametrize(
    ("error", "met", "text"),
    [
        (
            json.JSONDecodeError("no value", "", 0),
            ValueError,
            "json.decoder.JSONDecodeError: no value: line 1",
        ),
        (socket.gaierror(-2, "unknown host"), OSError, "socket.gaierror: [Errno -2] unknown host"),
        (undecodable(), UnicodeError, "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff"),
        (Bare(object()), ValueError, f"{__name__}.Bare: bare"),
        (ConnectionResetError("gone"), ConnectionResetError, "gone"),
        (ValueError(Answer(code=7)), ValueError, "{'code': 7}"),
        (Answered(Answer(code=7)), ConnectionError, f"{__name__}.Answered: it said no"),
        (Closed("shut"), holdfast.StepFailed, "step 'it' failed: Closed: Closed, which cannot be told of"),
        (StopIteration("no more"), holdfast.StepFailed, "step 'it' failed: StopIteration: no more"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else None,
)
def test_an_error_is_met_as_the_nearest_class_that_is_known(
    error: Exception, met: type[Exception], text: str
) -> None:
    """Its text says what it was, where it is not met as itself."""
    found = rebuilt(error)
    assert type(found) is met
    assert str(found).startswith(text)


def test_a_registered_error_covers_what_is_derived_from_it() -> None:
    """With its facts, and before built-in classes; a class that is registered itself comes first."""
    found = rebuilt(Declined("4111"), HouseError)
    assert type(found) is HouseError
    assert (str(found), vars(found)) == (f"{__name__}.Declined: 4111 was declined", {"card": "4111"})
    assert type(rebuilt(LateError("late"), HouseError)) is HouseError
    assert type(rebuilt(LateError("late"))) is TimeoutError
    assert type(rebuilt(Declined("4111"), HouseError, Declined)) is Declined
    assert type(rebuilt(Declined("4111"))) is holdfast.StepFailed


def test_an_error_that_was_recorded_without_bases_is_met_as_before() -> None:
    """Records outlive the code that wrote them."""
    for name, met in (("json.decoder.JSONDecodeError", holdfast.StepFailed), ("KeyError", KeyError)):
        record = msgspec.json.encode({"type": name, "message": "old", "args": ["old"]}).decode()
        assert type(Failures({}).rebuilt("it", record)) is met
    assert msgspec.json.decode(recorded(ValueError("x"))) == {
        "type": "ValueError",
        "message": "x",
        "args": ["x"],
    }
    assert msgspec.json.decode(recorded(LateError()), type=Told).bases == [
        "TimeoutError",
        "OSError",
        f"{__name__}.HouseError",
    ]


def decode(text: str) -> Any:
    """A step in a process."""
    return json.loads(text)


@pytest.mark.parametrize("executor", ["thread", "process"])
async def test_a_run_catches_errors_by_their_bases(
    client: holdfast.Client, work: Any, app: holdfast.App, executor: str
) -> None:
    """At the first time as at a replay, wherever the step runs."""

    @app.workflow
    async def plan(run: holdfast.Run) -> str:
        met = "nothing"
        try:
            await run.step(decode, "{", executor=executor)
        except ValueError as error:
            met = str(error)
        await run.wait_signal("go")
        return met

    await work(app)
    handle = await client.enqueue(plan.job())
    await client.signal(handle.id, "go")
    assert (await client.wait(handle.id, timeout=20)).startswith("json.decoder.JSONDecodeError: Expecting")
