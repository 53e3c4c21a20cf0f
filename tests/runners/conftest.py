"""Runners over real HTTP: the service on a free port of this machine, real PostgreSQL behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import httpx
import msgspec
import pytest

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.client.remote.connection import rebuilt
from holdfast.maintenance.config import MaintenanceConfig
from holdfast.maintenance.duty import Duty
from holdfast.maintenance.leadership import Leadership
from holdfast.maintenance.rescuer import Rescuer
from holdfast.rules.liveness import Intervals
from holdfast.runners import dispatcher
from holdfast.runners.desk import Desk
from holdfast.runners.messages import (
    AssignmentTold,
    Claim,
    Claimed,
    Finish,
    Finished,
    HeldByRunner,
    Leave,
    Register,
    Registered,
    Stand,
    Sync,
    Synced,
    Word,
)
from holdfast.runtime.events import Events
from holdfast.store import leader
from holdfast.store.attempts import Fence
from holdfast.testing import Probe, ThrowawayDatabase
from tests.web.conftest import Serve, Service, serve  # noqa: F401 - the last one is a fixture

D = TypeVar("D", bound=Duty)
T = TypeVar("T")
ARGV = '{"argv": ["true"]}'


@dataclass
class Machine:
    """A runner as a test plays it, over HTTP: it counts its requests and speaks by its token."""

    yard: Yard
    registered: Registered
    token: str
    number: int = 0

    @property
    def worker_id(self) -> int:
        """Its id."""
        return self.registered.runner.id

    def at(self, yard: Yard, number: int = 0) -> Machine:
        """The same runner, who speaks to another server."""
        return replace(self, yard=yard, number=number)

    def by(self, token: str) -> Machine:
        """A program of this runner, who speaks by the token of its assignment."""
        return replace(self, token=token)

    def count(self) -> int:
        """The number of the next request."""
        self.number += 1
        return self.number

    async def sync(self, *held: HeldByRunner, **options: Any) -> Synced:
        """Say what is held."""
        asked = Sync(held=list(held), **({"number": self.count()} | options))
        return await self.yard.post("sync", asked, Synced, self.token)

    async def claim(self, count: int = 1, wait: float = 0.0) -> list[AssignmentTold]:
        """Ask for assignments."""
        asked = Claim(number=self.count(), count=count, wait=wait)
        return (await self.yard.post("claim", asked, Claimed, self.token)).offers

    async def one(self) -> AssignmentTold:
        """Ask for one assignment, which has to be there."""
        [offer] = await self.claim()
        return offer

    async def accept(self, told: AssignmentTold) -> Stand:
        """Accept an offer."""
        return await self._say(told, "accept")

    async def start(self, told: AssignmentTold) -> Stand:
        """Begin an assignment."""
        return await self._say(told, "start")

    async def progress(self, told: AssignmentTold, **word: Any) -> Stand:
        """Say something of an assignment."""
        return await self._say(told, "progress", **word)

    async def finish(self, told: AssignmentTold, outcome: str = "completed", **more: Any) -> Finished:
        """Report the end of an assignment."""
        report = Finish(outcome=outcome, **({"number": self.count()} | more))  # type: ignore[arg-type]
        return await self.yard.post(f"{place(told)}/finish", report, Finished, self.token)

    async def log(self, told: AssignmentTold, offset: int, written: bytes) -> None:
        """Append to the standard output of an assignment."""
        path, headers = f"{place(told)}/logs/stdout", {"Holdfast-Offset": str(offset)}
        await self.yard.ask("PATCH", path, self.token, content=written, headers=headers)

    async def keep(self, told: AssignmentTold, name: str, data: bytes) -> None:
        """Leave a file of an assignment."""
        await self.yard.ask("PUT", f"{place(told)}/artifacts/{name}", self.token, content=data)

    async def leave(self) -> None:
        """Go."""
        await self.yard.ask("POST", "leave", self.token, content=msgspec.json.encode(Leave(self.count())))

    async def _say(self, told: AssignmentTold, verb: str, **word: Any) -> Stand:
        said = Word(number=self.count(), **word)
        return await self.yard.post(f"{place(told)}/{verb}", said, Stand, self.token)


def fence(told: AssignmentTold) -> Fence:
    """What every write about this assignment names."""
    return Fence(told.job, told.attempt)


def place(told: AssignmentTold) -> str:
    """Where this assignment is spoken of."""
    return f"assignments/{told.job}/{told.attempt}"


def listed(told: AssignmentTold, state: str = "running", **more: Any) -> HeldByRunner:
    """An assignment as it stands in the list of a runner."""
    return HeldByRunner(job=told.job, attempt=told.attempt, state=state, **more)  # type: ignore[arg-type]


@dataclass
class Yard:
    """One server process, its database, and machines that come to it over HTTP."""

    db: ThrowawayDatabase
    client: holdfast.Client
    service: Service
    http: httpx.AsyncClient
    probe: Probe

    @property
    def desk(self) -> Desk:
        """What the server has for runners: to see what it waits for, never to speak to."""
        desk: Desk = self.service.server.application.state.desk
        return desk

    async def ask(self, method: str, path: str, token: str | None, **given: Any) -> bytes:
        """Send a request of the protocol; what it is refused with is raised as the error that it is."""
        sent = {} if token is None else {"Authorization": f"Bearer {token}"}
        headers = sent | given.pop("headers", {"Content-Type": "application/json"})
        answer = await self.http.request(method, f"/runner/v1/{path}", headers=headers, timeout=60, **given)
        if answer.is_error:
            raise rebuilt(answer.status_code, answer.content)
        return answer.content

    async def post(self, path: str, said: msgspec.Struct, answer: type[T], token: str | None) -> T:
        """Send a message of the protocol and read its answer."""
        told = await self.ask("POST", path, token, content=msgspec.json.encode(said))
        return msgspec.json.decode(told, type=answer)

    async def machine(self, name: str = "build-1", **options: Any) -> Machine:
        """Register a runner."""
        wishes: dict[str, Any] = {"name": name, "protocols": [1], "slots": 1} | options
        registered = await self.post("register", Register(**wishes), Registered, None)
        return Machine(self, registered, registered.token)

    async def enqueue(self, count: int = 1, **options: Any) -> list[int]:
        """Enqueue commands; answers their ids."""
        request = JobRequest(options.pop("kind", "command"), options.pop("args", ARGV))
        handles = [await self.client.enqueue(request, **options) for _ in range(count)]
        return [handle.id for handle in handles]

    async def desk_hears(self, machine: Machine) -> None:
        """Wait until a sync of the machine is held back."""
        async with asyncio.timeout(5):
            while machine.worker_id not in self.desk.dispatcher.waiting:  # noqa: ASYNC110 - held back, it says nothing
                await asyncio.sleep(0.005)

    async def desk_hears_of(self, machine: Machine) -> None:
        """Wait until the notification of a drain or a resume of the machine, which has spoken, has come.

        A request that it overtakes is answered with nothing, for the machine to ask again.
        """
        known = self.desk.hearing._known
        async with asyncio.timeout(5):
            while any(one.worker_id == machine.worker_id for one in known):  # noqa: ASYNC110 - it forgets in silence
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


OpenYard = Callable[[], Awaitable[Yard]]


@pytest.fixture
def open_yard(
    db: ThrowawayDatabase,
    client: holdfast.Client,
    serve: Serve,  # noqa: F811 - the fixture of that name
    probe: Probe,
    intervals: Intervals,
) -> OpenYard:
    """Starts server processes inside the test's loop."""

    async def start() -> Yard:
        service = await serve(intervals=intervals)
        return Yard(db, client, service, await service.caller(), probe)

    return start


@pytest.fixture
async def yard(open_yard: OpenYard) -> Yard:
    """A server process that runners can come to."""
    return await open_yard()
