"""What the tests for engines need of an implementation, and what they share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Protocol

from holdfast.engine import Claim, Engine, StepReport, StepState
from holdfast.errors import LeaseLost

KIND = "conformance"


class EngineGround(Protocol):
    """What the tests need of an implementation: workers, time, and a look from outside."""

    async def worker(self, *, version: int = 1) -> Engine:
        """Make another worker that knows kind ``conformance`` and saves states of this version."""

    async def lapse(self, engine: Engine) -> None:
        """Let the lease of a worker run out, as if its process had died."""

    async def advance(self, seconds: float) -> None:
        """Let time pass."""

    async def state(self, run_id: int) -> str:
        """Say where a run stands: available, scheduled, running, waiting, completed, failed or cancelled."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Lend a connection in a transaction that commits when the block ends well."""


class Undone(Exception):
    """Raised by a test to have its transaction rolled back."""


@contextmanager
def refused(error: type[Exception] = LeaseLost) -> Iterator[None]:
    """Expect the block to raise *error*."""
    try:
        yield
    except error:
        return
    msg = f"{error.__name__} was not raised"
    raise AssertionError(msg)


async def one(engine: Engine) -> Claim:
    """Claim the only run that is there."""
    [claim] = await engine.queue.claim(10)
    return claim


async def begun(engine: Engine, **options: Any) -> Claim:
    """Enqueue a run and claim it."""
    await engine.queue.enqueue(KIND, {}, **options)
    return await one(engine)


def report(state: StepState, place: int = 0, **facts: Any) -> StepReport:
    """A report about a step."""
    return StepReport(step=f"step {place}", place=place, state=state, **facts)
