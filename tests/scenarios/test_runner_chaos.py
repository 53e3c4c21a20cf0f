"""Runners, their service and what lies between them: whatever breaks, no job is lost and none is doubled."""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

import holdfast
from tests.scenarios.ferry import Ferry, Forward, Message
from tests.scenarios.forker import forking
from tests.scenarios.islands import ADDRESSES, Islands, NoSea
from tests.scenarios.yard import PATIENCE, Yard, yard

YARDS = 3
# How often a death is tried again that did not come.
TRIES = 10
LONG_SPEC = "x" * 70_000
ARTIFACTS = "select name, data from holdfast.artifacts where job_id = $1"
DAMAGED = "select attempt, stream from holdfast.log_streams where job_id = $1 and intact is not true"
EVIDENCE = "select attempt, evidence::text from holdfast.assignments where job_id = $1"
SCRIPT = "seq 1 3000; echo oh >&2; sleep 0.4; echo kept >kept.txt; seq 3001 6000"
SAID = "".join(f"{number}\n" for number in range(1, 6001)).encode()

RUNNERS = 2
# How long a request is held up, and how late it may come once more, in seconds.
DELAY, LATEST = 0.1, 3.0
WEATHER = {"lost", "repeated", "unanswered", "swallowed"}
SOON = holdfast.Constant(timedelta(seconds=0.1))
# The first ones take longer than a runner may be cut off, and are deaf to SIGINT: they live until killed.
# They are more than one runner has slots.
LONG_ONES = 4
COMMANDS = [
    (f"{deaf}seq {first} {first + 2000}; sleep {rest}; seq {first}", text)
    for nth, first in enumerate(range(1000, 1012))
    for deaf, rest in [("trap '' INT; ", 12) if nth < LONG_ONES else ("", 0.3)]
    for text in ["".join(f"{n}\n" for n in (*range(first, first + 2001), *range(1, first + 1))).encode()]
]
RUNS_A_LONG_ONE = """
    select exists (
        select from holdfast.live_jobs j join holdfast.workers w on w.id = j.worker_id
        where j.state = 'running' and w.name = $1 and j.job_id = any($2)
    )
"""
# How long nothing passes between the islands, in seconds; a runner may be silent for much longer.
CUT = 3.0
ISLAND_COMMANDS = [
    (f"seq {first} {first + 3000}; sleep 1; seq {first}", text)
    for first in range(2000, 2016)
    for text in ["".join(f"{n}\n" for n in (*range(first, first + 3001), *range(1, first + 1))).encode()]
]


@dataclass(frozen=True)
class Place:
    """One request in the life of an assignment: the *nth* one of this name."""

    name: str
    nth: int


@dataclass(frozen=True)
class Death:
    """SIGKILL of the service when a request is about to arrive, or when its answer is about to leave."""

    place: Place
    after: bool


# What no assignment of SCRIPT does without; how many requests come on top depends on the moment.
CERTAIN = {
    Place("register", 1),
    Place("sync", 1),
    Place("spec", 1),
    Place("logs/stdout", 1),
    Place("logs/stdout", 2),
    Place("logs/stderr", 1),
    Place("artifacts/kept.txt", 1),
    Place("finish", 1),
    Place("leave", 1),
}


class Life:
    """The life of an assignment, with a *death* of its service in it."""

    def __init__(self, ground: Yard, death: Death | None) -> None:
        self._yard, self._death = ground, death
        self._places: list[Place] = []
        self._rebirth: asyncio.Task[None] | None = None

    async def live(self) -> list[str]:
        """Let a runner do one command, from its registration to its goodbye; answers what went wrong."""
        handle = await self._yard.enqueue(SCRIPT, env={"LONG": LONG_SPEC}, artifacts=["kept.txt"])
        job_id = handle.id
        async with Ferry(self._yard.port) as ferry:
            ferry.carry = self._carry
            runner = await self._yard.start_runner(f"runner-{job_id}", ferry.address, "--once")
            async with asyncio.timeout(PATIENCE):
                code = await runner.ended
        # Nothing is carried any more, so no death can come later than this.
        if self._rebirth is not None:
            await self._rebirth
        problems = await self._yard.history({job_id: SAID})
        return problems + await self._untruths(job_id, code)

    async def _carry(self, message: Message, forward: Forward) -> bytes | None:
        counts = Counter(place.name for place in self._places)
        place = Place(message.name, counts[message.name] + 1)
        self._places.append(place)
        if self._death == Death(place, after=False):
            self._die()
            return None
        answer = await forward(message)
        if self._death == Death(place, after=True):
            self._die()
            return None
        return answer

    def _die(self) -> None:
        self._rebirth = asyncio.create_task(self._yard.restart_server())

    async def _untruths(self, job_id: int, code: int) -> list[str]:
        expected = {
            "exit code": (code, 0),
            "stdout": (await self._yard.log(job_id), {1: SAID}),
            "stderr": (await self._yard.log(job_id, "stderr"), {1: b"oh\n"}),
            "artifacts": (await self._yard.db.fetch(ARTIFACTS, job_id), [("kept.txt", b"kept\n")]),
            "damaged logs": (await self._yard.db.fetch(DAMAGED, job_id), []),
            "evidence": (await self._yard.db.fetch(EVIDENCE, job_id), [(1, "[]")]),
        }
        return [f"{what}: {found}" for what, (found, right) in expected.items() if found != right]

    @property
    def places(self) -> set[Place]:
        """The requests that were made."""
        return set(self._places)

    @property
    def died(self) -> bool:
        """True once the death has come."""
        return self._rebirth is not None


@pytest.mark.timeout(600)
async def test_an_assignment_survives_the_death_of_its_service_at_every_request(
    dsn: str, tmp_path: Path
) -> None:
    """SIGKILL before a request arrives and before its answer leaves: one attempt, one end, the whole log."""
    async with AsyncExitStack() as stack:
        forker = await stack.enter_async_context(forking())
        yards = [await stack.enter_async_context(yard(dsn, forker, tmp_path)) for _ in range(YARDS)]
        await asyncio.gather(*(one.open() for one in yards))
        lives = [Life(one, None) for one in yards]
        assert await asyncio.gather(*(one.live() for one in lives)) == [[]] * YARDS
        places = CERTAIN.union(set.intersection(*(one.places for one in lives)))
        ends = await _died(yards, [Death(place, after) for place in places for after in (False, True)])
    assert {death: problems for death, (_, problems) in ends.items() if problems} == {}
    came = {death for death, (died, _) in ends.items() if died}
    assert {Death(place, after) for place in CERTAIN for after in (False, True)} - came == set()


async def _died(yards: list[Yard], deaths: list[Death]) -> dict[Death, tuple[bool, list[str]]]:
    """Die all deaths, in whichever yard is free; answers whether each has come, and what went wrong."""
    ends: dict[Death, tuple[bool, list[str]]] = {}

    async def use(ground: Yard) -> None:
        while deaths:
            death = deaths.pop()
            for _ in range(TRIES):
                life = Life(ground, death)
                problems = await life.live()
                ends[death] = (life.died, problems)
                if life.died or problems or death.place not in CERTAIN:
                    break

    async with asyncio.TaskGroup() as group:
        for ground in yards:
            group.create_task(use(ground))
    return ends


class Storm:
    """What a bad network does to requests: it loses, repeats and delays them, and loses answers."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)  # noqa: S311 - weather, not a secret
        self.silent = asyncio.Event()
        self._echoes: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()

    async def carry(self, message: Message, forward: Forward) -> bytes | None:
        """Carry a request through."""
        if self.silent.is_set():
            # Half open: the connection stands, and nothing ever comes of it.
            self.counts["swallowed"] += 1
            await asyncio.Event().wait()
        await asyncio.sleep(self._dice.random() * DELAY)
        fate = self._dice.random()
        if fate < 0.1:
            self.counts["lost"] += 1
            return None
        if fate < 0.4:
            self.counts["repeated"] += 1
            self._echo(message, forward)
        answer = await forward(message)
        if fate > 0.9:
            self.counts["unanswered"] += 1
            return None
        return answer

    def _echo(self, message: Message, forward: Forward) -> None:
        """Send a request once more, perhaps much later; nobody hears the answer."""
        task = asyncio.create_task(self._late(message, forward))
        self._echoes.add(task)
        task.add_done_callback(self._echoes.discard)

    async def _late(self, message: Message, forward: Forward) -> None:
        await asyncio.sleep(self._dice.random() ** 3 * LATEST)
        with suppress(OSError, asyncio.IncompleteReadError):
            await forward(message)

    async def end(self) -> None:
        """Let the last echoes die."""
        await asyncio.gather(*self._echoes)


@pytest.mark.timeout(300)
async def test_no_storm_loses_or_doubles_a_job(dsn: str, tmp_path: Path) -> None:
    """Requests are lost, repeated and overtaken, a runner is cut off for too long, the service is killed.

    Each command runs under a lock that lives as long as any process of it, so that two at once would be seen.
    """
    storms = [Storm(seed) for seed in range(RUNNERS)]
    async with AsyncExitStack() as stack:
        forker = await stack.enter_async_context(forking())
        ground = await stack.enter_async_context(yard(dsn, forker, tmp_path))
        ground.lost_after = 6.0
        await ground.open()
        ferries = [await ground.ferry() for _ in storms]
        for nth, (ferry, storm) in enumerate(zip(ferries, storms, strict=True)):
            ferry.carry = storm.carry
            stack.push_async_callback(storm.end)
            await ground.start_runner(f"runner-{nth}", ferry.address, "--slots=3")
        # One of the long ones is left for whoever comes last.
        await ground.until("select count(*) = 2 from holdfast.workers where name like 'runner-_'")
        said = {
            (await ground.enqueue(script, max_attempts=9, retry=SOON)).id: text for script, text in COMMANDS
        }
        await ground.until(RUNS_A_LONG_ONE, "runner-0", list(said)[:LONG_ONES])
        storms[0].silent.set()
        await ground.until("select count(*) > 0 from holdfast.attempts where outcome = 'lost'")
        await ground.end_server()
        await ground.start_server()
        storms[0].silent.clear()
        await ferries[0].interrupt()
        await ground.until("select count(*) = 0 from holdfast.live_jobs")
        for storm in storms:
            await storm.end()
        assert await ground.history(said) == []
        assert sum((storm.counts for storm in storms), Counter()).keys() == WEATHER


@pytest.mark.timeout(300)
async def test_a_runner_on_an_island_of_its_own_loses_and_doubles_nothing(dsn: str, tmp_path: Path) -> None:
    """Packets are lost, doubled, delayed and overtaken, all are cut off for a while, the service is killed.

    Less than the limit of silence, so every command runs once, and its log is whole.
    """
    async with AsyncExitStack() as stack:
        try:
            islands = await stack.enter_async_context(Islands(seed=7))
        except NoSea as error:
            pytest.skip(f"no network namespaces with TUN devices here (it takes root): {error}")
        forker = await stack.enter_async_context(forking())
        ground = await stack.enter_async_context(yard(dsn, forker, tmp_path))
        ground.host, ground.namespace = ADDRESSES[0], islands.names[0]
        await ground.open()
        islands.loss, islands.doubling, islands.delay = 0.05, 0.1, 0.04
        await ground.start_runner("islander", ground.address, "--slots=4", namespace=islands.names[1])
        said = {(await ground.enqueue(script, max_attempts=1)).id: text for script, text in ISLAND_COMMANDS}
        await ground.until("select count(*) > 2 from holdfast.live_jobs where state = 'running'")
        islands.cut = True
        await asyncio.sleep(CUT)
        islands.cut = False
        await ground.until("select count(*) > 4 from holdfast.finished_jobs")
        await ground.end_server()
        await ground.start_server()
        await ground.until("select count(*) = 0 from holdfast.live_jobs")
        assert await ground.history(said) == []
        assert islands.counts.keys() == {"lost", "doubled", "cut off"}
