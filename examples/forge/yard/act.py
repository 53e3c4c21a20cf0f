"""The demo's second act: twenty commands on two runners, one cancelled, one runner killed, logs followed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from examples.forge.database import Connection, connect
from examples.forge.scene import report
from examples.forge.settings import Settings
from examples.forge.yard.caller import Caller, Tail
from examples.forge.yard.crew import RUNNERS, Crew
from examples.forge.yard.errands import ERRANDS, PATROL, WALK, job_of
from examples.forge.yard.inspection import Inspection

LOOK_EVERY = 0.1
ENOUGH_LINES = 3
WHY = "the patrol has seen enough"

_PLACES = """
select owner, name from forge.repositories where owner = 'makers' and size_bytes is not null order by id
"""
_ONLINE = "select count(*) from holdfast.workers where name = any (%s) and state = 'online'"
_LIVE = "select count(*) from holdfast.unfinished_jobs where job_id = any (%s)"
_BUSIEST = """
select w.name, count(*) from holdfast.unfinished_jobs l join holdfast.workers w on w.id = l.worker_id
where l.job_id = any (%s) and l.state = 'running' group by 1 order by 2 desc, 1 limit 1
"""


class StoodStill(Exception):
    """Something that had to happen in the yard has not happened in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the act is played: *slots* of each runner, and times in seconds."""

    slots: int = 3
    lost_after: float = 5.0
    patience: float = 60.0


class Act:
    """Plays the act on the repositories of the first one; *tell* gets each line worth knowing."""

    def __init__(
        self, settings: Settings, connection: Connection, plan: Plan, tell: Callable[[str], None]
    ) -> None:
        self._settings, self._connection, self._plan, self._tell = settings, connection, plan, tell
        self._deadline = time.monotonic() + plan.patience
        self.jobs: list[int] = []
        self.tails: list[Tail] = []
        self.killed = ""

    def play(self, crew: Crew, caller: Caller, witness: Path) -> None:
        """Play from the first errand to the last end."""
        self._crew = crew
        names = " and ".join(RUNNERS)
        self._until("the runners are there", lambda: self._value(_ONLINE, list(RUNNERS)) == len(RUNNERS))
        self._tell(f"the service is at {crew.address}, runners {names} know nothing but that")
        self._enqueue(caller, witness)
        patrol = self.jobs[ERRANDS.index(PATROL)]
        followed = {patrol: "patrol", self.jobs[ERRANDS.index(WALK)]: "walk"}
        self.tails = [Tail(caller, job_id, self._shown(title)) for job_id, title in followed.items()]
        self._until("the patrol has something to say", lambda: len(self.tails[0].heard) >= ENOUGH_LINES)
        caller.cancel(patrol, WHY)
        self._tell(f"job {patrol} (patrol) is cancelled while it runs")
        self._until("the patrol is back", lambda: self._value(_LIVE, [patrol]) == 0)
        self._until("a runner holds running jobs", self._kill_the_busiest)
        self._until("every errand is done", lambda: self._value(_LIVE, self.jobs) == 0)
        for tail in self.tails:
            tail.thread.join(self._plan.patience)
        self._tell(f"all {len(self.jobs)} commands have ended")

    def _enqueue(self, caller: Caller, witness: Path) -> None:
        root = self._settings.root
        places = [root / owner / f"{name}.git" for owner, name in self._connection.execute(_PLACES)]
        jobs = [job_of(one, places[nth % len(places)], witness) for nth, one in enumerate(ERRANDS)]
        self.jobs = caller.enqueue(jobs)
        if caller.enqueue(jobs) != self.jobs:
            msg = "the same request with the same key made other jobs"
            raise StoodStill(msg)
        self._tell(
            f"{len(jobs)} commands on {len(places)} repositories are enqueued over HTTP, in one request"
        )

    def _kill_the_busiest(self) -> bool:
        row = self._connection.execute(_BUSIEST, [self.jobs]).fetchone()
        if row is None:
            return False
        self.killed, running = row
        self._crew.kill(self.killed)
        self._tell(f"runner {self.killed} is killed (SIGKILL) with {running} commands, which die with it")
        return True

    def _shown(self, title: str) -> Callable[[str], None]:
        return lambda line: self._tell(f"  {title:>6} │ {line[:80]}")

    def _value(self, question: str, *parameters: object) -> int:
        [(value,)] = self._connection.execute(question.encode(), parameters).fetchall()
        return int(value)

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        while not holds():
            self._crew.check()
            if time.monotonic() > self._deadline:
                msg = f"waited in vain until {what}"
                raise StoodStill(msg)
            time.sleep(LOOK_EVERY)


def play(settings: Settings, folder: Path, plan: Plan, console: Console) -> bool:
    """Play the act and print how it ended; True if the inspection found nothing wrong."""
    began = time.monotonic()

    def tell(line: str) -> None:
        console.print(f"{time.monotonic() - began:5.1f} s  {line}", highlight=False, markup=False)

    witness = folder / "witness"
    witness.mkdir(parents=True)
    crew = Crew(settings, folder / "logs", slots=plan.slots, lost_after=plan.lost_after)
    with ExitStack() as stack:
        connection = stack.enter_context(connect(settings.database_url, autocommit=True))
        stack.enter_context(crew)
        caller = stack.enter_context(Caller(crew.address, crew.token("ada", "operator")))
        act = Act(settings, connection, plan, tell)
        act.play(crew, caller, witness)
        inspection = Inspection(connection, caller, witness, act)
        inspection.show(console)
        return report.judge(console, inspection.findings(), "Did every command end once, and as it had to?")
