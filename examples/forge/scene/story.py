"""The demo's story: pushes from all sides, an import, an outage, a killed worker, and the end of it all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from examples.forge import repositories
from examples.forge.database import Connection
from examples.forge.forge import Forge
from examples.forge.kinds import imports
from examples.forge.scene import server, standing
from examples.forge.scene.clients import Crowd
from examples.forge.scene.fleet import Death, Fleet
from examples.forge.scene.github import ORGANISATION
from examples.forge.scene.standing import Standing

LOOK_EVERY = 0.2
SPOOLED_IN_OUTAGE = 3


class TookTooLong(Exception):
    """Something that had to happen has not happened in time."""


class WorkerEnded(Exception):
    """A worker ended that nobody told to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large the demo is.

    All times are in seconds: *pushing* is the most that the pushes may take, so a slow machine makes fewer of
    them; *ttl* is the workers'; *patience* is for all of it.
    """

    pushes: int = 180
    clients: int = 6
    repositories: int = 6
    workers: int = 3
    refs_at_once: int = 40
    rankings: int = 2
    ttl: float = 5.0
    pushing: float = 60.0
    patience: float = 110.0


class Story:
    """Plays one demo; *tell* gets each line worth knowing, *show* each look at how things stand."""

    def __init__(
        self,
        forge: Forge,
        connection: Connection,
        server_url: str,
        scale: Scale,
        *,
        tell: Callable[[str], None],
        show: Callable[[Standing, int], None],
    ) -> None:
        self._forge, self._connection, self._server_url = forge, connection, server_url
        self.scale, self._tell, self._show = scale, tell, show
        self._deadline = time.monotonic() + scale.patience
        self._wanted = threading.Event()
        self._began = 0.0
        self._at_work: list[Future[None]] = []
        self.crowd: Crowd | None = None
        self.death: Death | None = None
        self.doomed: frozenset[int] = frozenset()
        self.seconds = 0.0

    def play(self, fleet: Fleet, folder: Path) -> Crowd:
        """Play from the first repository to the last processed push."""
        self._fleet = fleet
        self.until("the workers are up", lambda now: now.workers == self.scale.workers)
        self._tell(f"{self.scale.workers} workers are up")
        crowd = self.crowd = self._settled_in(folder)
        with ThreadPoolExecutor(len(crowd.clients)) as pool:
            try:
                self._push(crowd, pool)
            finally:
                # Whatever happens here, the clients stop after the push that they are at.
                self._wanted.clear()
        self._tell(f"all clients are done: {len(crowd.ledger.accepted)} pushes")
        self.until("everything is processed", lambda now: now.is_settled)
        self.until("trending ticked often enough", lambda now: now.rankings >= self.scale.rankings)
        return crowd

    def _settled_in(self, folder: Path) -> Crowd:
        made = []
        with self._forge.connect() as connection:
            for number in range(1, self.scale.repositories + 1):
                name = f"project-{number}"
                made.append(repositories.create(connection, self._forge.settings, "makers", name))
        crowd = Crowd(made, folder, clients=self.scale.clients)
        crowd.settle_in()
        self._tell(f"{len(made)} repositories with a first history, {len(crowd.clients)} clients with clones")
        return crowd

    def _push(self, crowd: Crowd, pool: ThreadPoolExecutor) -> None:
        self._began = time.monotonic()
        self._wanted.set()
        each = -(-self.scale.pushes // len(crowd.clients))
        self._at_work = [pool.submit(client.work, each, self._is_wanted) for client in crowd.clients]
        self._after(0.1, self._ask_for_imports)
        self._after(0.25, self._doom_some_jobs)
        self._after(0.4, self._refuse_connections)
        self._after(0.65, lambda: self._kill_one(crowd))
        self.until("all clients are done", lambda _: self._all_pushed())
        self.seconds = self._passed()

    def _after(self, part: float, act: Callable[[], None]) -> None:
        """Do something once *part* of all pushes are through, or of their time is over."""
        wanted, late = int(part * self.scale.pushes), part * self.scale.pushing
        self.until(
            f"{wanted} pushes are through", lambda _: self._pushed() >= wanted or self._passed() > late
        )
        act()

    def _passed(self) -> float:
        return time.monotonic() - self._began

    def _is_wanted(self) -> bool:
        return self._wanted.is_set() and self._passed() < self.scale.pushing

    def _ask_for_imports(self) -> None:
        with self._forge.connect() as connection:
            imports.request(self._forge, connection, ORGANISATION)
        self._tell(f"somebody imports {ORGANISATION!r} from GitHub, which asks for patience now and then")

    def _doom_some_jobs(self) -> None:
        """Enqueue what can only fail: a bad payload, an event that is not there, an unknown organisation."""
        with self._forge.connect() as connection:
            statement = (
                "select holdfast.enqueue('push:process', '{\"event_id\": \"seven\"}', queue => 'pushes')"
            )
            [(bad,)] = connection.execute(statement).fetchall()
            gone = self._forge.enqueue(connection, "push:process", event_id=2**40)
            nobody = imports.request(self._forge, connection, "nobody")
        self.doomed = frozenset({bad, gone, nobody})
        self._tell("three jobs are enqueued that can never succeed: they have to fail at once")

    def _refuse_connections(self) -> None:
        with server.refusing(self._server_url, self._forge.settings.database_url):
            enough = SPOOLED_IN_OUTAGE
            self.until("pushes are spooled", lambda now: now.spooled >= enough or self._all_pushed())
            self._tell("the database refused connections for a moment: pushes went on, their events to disk")

    def _kill_one(self, crowd: Crowd) -> None:
        """Kill a worker while it holds jobs: a push with many refs gives all of them something to hold."""
        many = threading.Thread(target=crowd.push_many, args=[self.scale.refs_at_once])
        many.start()

        def killed(_: Standing) -> bool:
            self.death = self._fleet.kill_one_at_work(self._connection)
            return self.death is not None

        try:
            self.until("a worker holds running jobs", killed, look_every=0.01)
        finally:
            many.join()
        if self.death is not None:
            self._tell(f"{self.death.worker} is killed (SIGKILL) with {len(self.death.held)} jobs in hand")

    def _all_pushed(self) -> bool:
        return all(one.done() for one in self._at_work)

    def _pushed(self) -> int:
        return len(self.crowd.ledger.accepted) if self.crowd else 0

    def until(self, what: str, holds: Callable[[Standing], bool], *, look_every: float = LOOK_EVERY) -> None:
        """Look again and again until *holds*; raises `TookTooLong`, `WorkerEnded`, what clients raised."""
        while True:
            now = standing.look(self._connection, self._forge.settings.root)
            self._show(now, self._pushed())
            if holds(now):
                return
            for ended in (one for one in self._at_work if one.done()):
                ended.result()
            if complaints := self._fleet.complaints():
                raise WorkerEnded("; ".join(complaints))
            if time.monotonic() > self._deadline:
                msg = f"waited in vain until {what}: {now}"
                raise TookTooLong(msg)
            time.sleep(look_every)
