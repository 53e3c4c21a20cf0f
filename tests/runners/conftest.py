"""Runners without a network: the desk of one server process, real PostgreSQL behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.client.token_operator import token_hash
from holdfast.maintenance.config import MaintenanceConfig
from holdfast.maintenance.duty import Duty
from holdfast.maintenance.leadership import Leadership
from holdfast.maintenance.rescuer import Rescuer
from holdfast.rules.liveness import Intervals
from holdfast.runners import dispatcher
from holdfast.runners.desk import Desk
from holdfast.runners.hearing import RunnerCaller
from holdfast.runners.messages import (
    AssignmentTold,
    Claim,
    Finish,
    Finished,
    HeldByRunner,
    Register,
    Registered,
    Stand,
    Sync,
    Synced,
    Word,
)
from holdfast.runtime.events import Events
from holdfast.store import leader, tokens
from holdfast.store.attempts import Fence
from holdfast.store.listen import Notifications
from holdfast.testing import Probe, ThrowawayDatabase

D = TypeVar("D", bound=Duty)
ARGV = '{"argv": ["true"]}'


@dataclass
class Machine:
    """A runner as a test plays it: it counts its requests and remembers its token."""

    yard: Yard
    registered: Registered
    caller: RunnerCaller
    number: int = 0
    held: list[HeldByRunner] = field(default_factory=list)

    def count(self) -> int:
        """The number of the next request."""
        self.number += 1
        return self.number

    async def sync(self, *held: HeldByRunner, **options: Any) -> Synced:
        """Say what is held."""
        asked = Sync(held=list(held), **({"number": self.count()} | options))
        return await self.yard.desk.conversation.sync(self.caller, asked)

    async def claim(self, count: int = 1, wait: float = 0.0) -> list[AssignmentTold]:
        """Ask for assignments."""
        asked = Claim(number=self.count(), count=count, wait=wait)
        return (await self.yard.desk.conversation.claim(self.caller, asked)).offers

    async def one(self) -> AssignmentTold:
        """Ask for one assignment, which has to be there."""
        [offer] = await self.claim()
        return offer

    async def say(self, told: AssignmentTold, *, running: bool, **word: Any) -> Stand:
        """Say something of an assignment."""
        said = Word(number=self.count(), **word)
        return await self.yard.desk.conversation.say(self.caller, fence(told), said, running=running)

    async def accept(self, told: AssignmentTold) -> Stand:
        """Accept an offer."""
        return await self.say(told, running=False)

    async def start(self, told: AssignmentTold) -> Stand:
        """Begin an assignment."""
        return await self.say(told, running=True)

    async def finish(self, told: AssignmentTold, outcome: str = "completed", **more: Any) -> Finished:
        """Report the end of an assignment."""
        report = Finish(outcome=outcome, number=self.count(), **more)  # type: ignore[arg-type]
        return await self.yard.desk.conversation.finish(self.caller, fence(told), report)


def fence(told: AssignmentTold) -> Fence:
    """What every write about this assignment names."""
    return Fence(told.job, told.attempt)


def listed(told: AssignmentTold, state: str = "running", **more: Any) -> HeldByRunner:
    """An assignment as it stands in the list of a runner."""
    return HeldByRunner(job=told.job, attempt=told.attempt, state=state, **more)  # type: ignore[arg-type]


@dataclass
class Yard:
    """One server process, its database, and machines that come to it."""

    db: ThrowawayDatabase
    client: holdfast.Client
    desk: Desk
    probe: Probe

    async def machine(self, name: str = "build-1", **options: Any) -> Machine:
        """Register a runner."""
        wishes: dict[str, Any] = {"name": name, "protocols": [1], "slots": 1} | options
        asked = Register(**wishes)
        registered = await self.desk.registrar.register(asked, "test")
        [token] = await self.db.database.run(tokens.use_tokens([token_hash(registered.token)]))
        assert token is not None
        return Machine(self, registered, RunnerCaller(registered.runner.id, token.id))

    async def enqueue(self, count: int = 1, **options: Any) -> list[int]:
        """Enqueue commands; answers their ids."""
        request = JobRequest(options.pop("kind", "command"), options.pop("args", ARGV))
        handles = [await self.client.enqueue(request, **options) for _ in range(count)]
        return [handle.id for handle in handles]

    async def desk_hears(self, machine: Machine) -> None:
        """Wait until a sync of the machine is held back."""
        async with asyncio.timeout(5):
            while machine.caller.worker_id not in self.desk.dispatcher.waiting:  # noqa: ASYNC110 - held back, it says nothing
                await asyncio.sleep(0.005)

    async def lead(self) -> int:
        """Become leader; answers the term."""
        term: int | None = await self.db.database.run(leader.lead("yard", None, 600.0))
        assert term is not None
        return term

    def duty(self, kind: type[D]) -> D:
        """A duty of the leader that does not run by itself."""
        events = Events(self.probe)
        leadership = Leadership(self.db.database, 4.0, lambda: None, events)
        return kind(self.db.database, leadership, MaintenanceConfig(), events)

    async def rescue(self) -> None:
        """Let the leader look for the dead."""
        await self.duty(Rescuer).lead(await self.lead())

    async def state(self, job_id: int) -> str:
        """Where a job stands."""
        state: str = await self.db.value("select state from holdfast.job_overview where id = $1", job_id)
        return state

    async def live(self, job_id: int) -> tuple[Any, ...]:
        """State, attempt, failures of a live job."""
        [row] = await self.db.fetch(
            "select state, attempt, failures from holdfast.live_jobs where job_id = $1", job_id
        )
        return tuple(row)


@pytest.fixture
def intervals() -> Intervals:
    """The intervals of the service."""
    return Intervals()


@pytest.fixture
def only_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers look for jobs when they are woken, and not from time to time."""
    monkeypatch.setattr(dispatcher, "LONGEST_REST", 600.0)


OpenDesk = Callable[[], Any]


@pytest.fixture
async def open_desk(db: ThrowawayDatabase, probe: Probe, intervals: Intervals) -> AsyncIterator[OpenDesk]:
    """Starts server processes inside the test's loop."""
    async with AsyncExitStack() as stack:

        async def start() -> Desk:
            events = Events(probe)
            desk = Desk(db.database, events, intervals)
            notifications = Notifications(db.database, events)
            notifications.subscribe(desk.notified)
            for service in (notifications, desk):
                await service.start()
                stack.push_async_callback(service.stop)
            await probe.wait_for("listen.connected")
            return desk

        yield start


@pytest.fixture
async def yard(db: ThrowawayDatabase, client: holdfast.Client, open_desk: OpenDesk, probe: Probe) -> Yard:
    """A server process that runners can come to."""
    return Yard(db, client, await open_desk(), probe)
