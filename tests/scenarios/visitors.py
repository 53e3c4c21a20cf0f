"""Clients that do one thing after another with jobs and runs of their own, as their dice say."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.client.operator import Operator
from holdfast.testing import ThrowawayDatabase
from tests.scenarios.bustle import QUEUES, SOON, journey, task
from tests.scenarios.yard import Yard

# How many things a visitor does in a second, and how many of its jobs and runs it remembers.
PACE, MEMORY = 6.0, 40
DEEDS = ["write"] * 4 + ["return"] * 4 + ["stumble"] * 2 + ["snooze", "give up", "spoil", "fail", "crash"]
# In seconds: some jobs outlive the freeze of the worker that had them before.
TIMES = [0.0] * 3 + [0.05] * 2 + [0.3] * 3 + [2.0] * 2
LEGS = ["write", "write", "write", "vow", "vow", "stumble", "rest", "ask", "fall", "bear", "fork"]
DEEPEST = 2
# What each program of a runner writes twice, and how it ends.
SAYS, SAID = "seq 1 500", "".join(f"{number}\n" for number in range(1, 501)).encode() * 2
FAILS = "{ note ended; exit 1; }"
EXITS = ["true"] * 4 + [FAILS, f"test $RUNNER_ATTEMPT -gt 1 || {FAILS}"]
TOO_LATE = (holdfast.StateConflict, holdfast.DuplicateJob, holdfast.RunEnded)


class Visitor:
    """One client; the same seed rolls the same dice.  With a *ground* it orders from runners, too."""

    def __init__(
        self, seed: str, db: ThrowawayDatabase, client: holdfast.Client, ground: Yard | None = None
    ) -> None:
        self._ground = ground
        self._dice = random.Random(seed)  # noqa: S311 - whims, not a secret
        self._db, self._client, self._queues = db, client, Operator(db.database, seed).queues
        self._jobs: list[int] = []
        self._runs: list[int] = []

    async def stay(self, seconds: float) -> None:
        """Do something again and again; what comes too late is refused, and that is all right."""
        client, any_of = self._client, self._dice.choice
        acts: dict[Callable[[], Awaitable[Any]], int] = {
            self._enqueue: 20,
            self._enqueue_many: 4,
            self._enqueue_within: 5,
            self._travel: 8,
            self._order: 5 if self._ground else 0,
            lambda: client.signal(any_of(self._runs), any_of("ab"), key=any_of([None, "k"])): 10,
            lambda: client.cancel(any_of(self._jobs)): 4,
            lambda: client.retry(any_of(self._jobs)): 6,
            lambda: client.pause(any_of(self._runs)): 2,
            lambda: client.resume(any_of(self._runs)): 2,
            lambda: self._queues.pause(any_of(QUEUES)): 1,
            lambda: self._queues.resume(any_of(QUEUES)): 2,
        }
        end = time.monotonic() + seconds
        await self._travel()
        while time.monotonic() < end:
            [act] = self._dice.choices(list(acts), list(acts.values()))
            with suppress(*TOO_LATE):
                await act()
            await asyncio.sleep(self._dice.expovariate(PACE))

    async def _enqueue(self) -> None:
        await self._remember(await self._client.enqueue(self._task()))

    async def _enqueue_many(self) -> None:
        many = [self._task() for _ in range(self._dice.choice([2, 5, 30]))]
        await self._remember(*await self._client.enqueue_many(many))

    async def _enqueue_within(self) -> None:
        """Enqueue in a transaction of our own, which may be taken back."""
        many, taken_back = [self._task() for _ in range(3)], self._dice.random() < 0.4
        async with self._db.database.connection() as connection:
            transaction = connection.transaction()
            await transaction.start()
            handles = await self._client.enqueue_many(many, connection=connection)
            await (transaction.rollback() if taken_back else transaction.commit())
        if taken_back:
            await self._note("taken back", [one.id for one in handles if one.status == "new"])
        else:
            await self._remember(*handles)

    async def _travel(self) -> None:
        run = await self._client.enqueue(journey.job(self._plan(0)))
        self._runs = [*self._runs, run.id][-MEMORY:]
        await self._remember(run)

    async def _order(self) -> None:
        """Have a runner run a program, in a queue on which workers work as well."""
        assert self._ground is not None
        script = f"{SAYS}; sleep {self._dice.choice(TIMES)}; {SAYS}; {self._dice.choice(EXITS)}"
        await self._remember(await self._ground.enqueue(script, max_attempts=3, retry=SOON, **self._place()))

    async def _remember(self, *handles: holdfast.JobHandle) -> None:
        ids = [one.id for one in handles]
        self._jobs = [*self._jobs, *ids][-MEMORY:]
        await self._note("enqueued", ids)

    async def _note(self, what: str, ids: Sequence[int]) -> None:
        await self._db.fetch("insert into holdfast.diary select unnest($1::bigint[]), 0, $2", ids, what)

    def _place(self) -> dict[str, Any]:
        any_of = self._dice.choice
        queue, key = any_of([("free", None), ("narrow", None), ("keyed", any_of("xyz"))])
        options: dict[str, Any] = {"queue": queue, "priority": self._dice.randrange(10)}
        if key:
            options["concurrency_key"] = key
        return options

    def _task(self) -> JobRequest:
        any_of, options = self._dice.choice, self._place()
        if self._dice.random() < 0.2:
            options["delay"] = any_of([0.01, 0.3, 1.0])
        if self._dice.random() < 0.3:
            # A replace takes no job to another line: the limits are judged by where it was in the end.
            place = f"{options['queue']} {options.get('concurrency_key')}"
            options["unique_key"] = f"{place} {self._dice.randrange(4)}"
            options["unique_policy"] = any_of(["keep", "replace", "reject"])
        return task.job(any_of(DEEDS), any_of(TIMES)).with_options(**options)

    def _plan(self, depth: int) -> list[Any]:
        return [self._leg(depth) for _ in range(self._dice.randint(1, 4))]

    def _leg(self, depth: int) -> list[Any]:
        any_of, several = self._dice.choice, range(self._dice.randint(1, 3))
        match leg := any_of(LEGS if depth < DEEPEST else LEGS[:-2]):
            case "rest":
                return [leg, any_of([0.02, 0.3, 1.3])]
            case "ask":
                return [leg, any_of("ab"), any_of([None, 0.4])]
            case "bear":
                return [leg, any_of(["cancel", "abandon"]), [self._child(depth + 1) for _ in several]]
            case "fork":
                return [leg, [self._plan(depth + 1) for _ in several]]
        return [leg]

    def _child(self, depth: int) -> tuple[str, dict[str, Any]]:
        if self._dice.random() < 0.5:
            return "journey", {"plan": self._plan(depth)}
        return "task", {"does": self._dice.choice(DEEDS), "seconds": 0.1}
