"""Clients do what they like, workers are killed, frozen and stopped: at rest, all is true that must be.

    SOAK_SEED=7 SOAK_SECONDS=60 make soak

rolls the dice of a long bustle again, whose seed was told when it failed; moments differ all the same.
"""

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.client.delivery_operator import Wish
from holdfast.client.operator import Operator
from holdfast.model.delivery import DeliveryEvent
from holdfast.rules.signature import is_signed
from holdfast.testing import ThrowawayDatabase
from tests.maintenance.receiver import Receiver, receiving
from tests.scenarios.bustle import QUEUES, TTL
from tests.scenarios.forker import Fork, forking
from tests.scenarios.truths import VIEWS, untruths
from tests.scenarios.visitors import SAID, Visitor
from tests.scenarios.yard import Yard

Start = Callable[[], Awaitable[Fork]]
SLOTS = (2, 5, 10)
VISITORS, LIMIT, KEY_LIMIT = 3, 3, 2
RUNNERS, LOST_AFTER = ("runner-a", "runner-b"), 5.0
PATIENCE, GLANCE, DAY = 60.0, 0.2, 86_400.0
TABLES = [
    """
    create table holdfast.diary (
        job_id bigint, attempt integer, what text, at timestamptz default clock_timestamp()
    )
    """,
    "create table holdfast.arrivals (delivery_id bigint, event text, job_id bigint)",
]
SPOKEN = "select job_id, attempt from holdfast.finished_jobs where kind = 'command' and outcome = 'completed'"
TOLD = "select count(*) = 0 from holdfast.delivery_places where moment <= $1"
COUNTED = "select min(counted_at) > $1 from holdfast.queues"
LIVE = """
    select l.job_id, s.paused, s.signals from holdfast.unfinished_jobs l
    left join holdfast.suspensions s on s.run_id = l.job_id
"""


class Crew:
    """Processes, and the misfortunes that befall them; for one that is gone another one comes."""

    def __init__(self, seed: str, starts: dict[str, Start]) -> None:
        self._dice = random.Random(seed)  # noqa: S311 - misfortune, not a secret
        self._starts, self._members = starts, dict[str, Fork]()

    async def keep(self, name: str) -> None:
        """Have the process of this name at all times."""
        while True:
            self._members[name] = member = await self._starts[name]()
            try:
                await asyncio.wait([member.ended])
            finally:
                await member.kill()

    async def suffer(self, seconds: float) -> None:
        """Let misfortunes come, each after a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(self._dice.uniform(0.2, 1.5))
            name = self._dice.choice(list(self._starts))
            befall = self._dice.choice([Fork.kill, self._freeze, self._stop])
            if member := self._members.get(name):
                with suppress(ProcessLookupError):
                    await befall(member)

    async def _freeze(self, member: Fork) -> None:
        os.kill(member.pid, signal.SIGSTOP)
        await asyncio.sleep(self._dice.uniform(0.5, 3.0) * TTL)
        os.kill(member.pid, signal.SIGCONT)

    async def _stop(self, member: Fork) -> None:
        os.kill(member.pid, signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([member.ended])


async def staff(ground: Yard) -> dict[str, Start]:
    """Return how a service and runners are started there."""
    ground.lost_after = LOST_AFTER
    await ground.prepare()
    flags = "--slots=3", f"--queues={','.join(QUEUES)}"
    runners = {name: partial(ground.start_runner, name, ground.address, *flags) for name in RUNNERS}
    return {"service": ground.start_server, **runners}


async def rest(db: ThrowawayDatabase, client: holdfast.Client, operator: Operator) -> list[str]:
    """Give all runs what they wait for until nothing lives; answers what lives all the same, and why."""
    for queue in QUEUES:
        await operator.queues.resume(queue)
    end = time.monotonic() + PATIENCE
    while live := await db.fetch(LIVE):
        if time.monotonic() > end:
            return [f"job {job_id} does not end: {await operator.jobs.why(job_id)}" for job_id, _, _ in live]
        for run_id, is_paused, names in live:
            with suppress(holdfast.StateConflict, holdfast.RunEnded):
                if is_paused:
                    await client.resume(run_id)
                for name in names or []:
                    await client.signal(run_id, name)
        await asyncio.sleep(GLANCE)
    return []


async def kept(db: ThrowawayDatabase, secret: str, receiver: Receiver) -> list[str]:
    """Write down what arrived; answers what is wrong with its signatures."""
    arrived = []
    for headers, body in receiver.got:
        if not is_signed(secret, body, headers["holdfast-signature"], time.time(), tolerance=DAY):
            return [f"delivery {headers['holdfast-delivery']} is signed wrongly"]
        told = json.loads(body)
        arrived.append((int(headers["holdfast-delivery"]), told["event"], told["job"]["id"]))
    columns = [list(column) for column in zip(*arrived, strict=True)]
    await db.fetch(
        "insert into holdfast.arrivals select * from unnest($1::bigint[], $2::text[], $3::bigint[])", *columns
    )
    return []


async def told(db: ThrowawayDatabase, ground: Yard) -> list[str]:
    """Take over what programs noted; answers whose log is not what it wrote."""
    columns = [list(column) for column in zip(*ground.lines(), strict=True)]
    await db.fetch(
        "insert into holdfast.diary (what, job_id, attempt, at) select w, j, a, to_timestamp(s) "
        "from unnest($1::text[], $2::bigint[], $3::integer[], $4::float[]) as l (w, j, a, s)",
        *columns,
    )
    logs = {ended: (await ground.log(ended[0])).get(ended[1]) for ended in await db.fetch(SPOKEN)}
    return [
        f"job {job_id}/{attempt} logged {log!r}" for (job_id, attempt), log in logs.items() if log != SAID
    ]


async def settled(
    db: ThrowawayDatabase, client: holdfast.Client, operator: Operator, eventually: Any
) -> list[str]:
    """Wait until all has ended, all ends are told, and all is counted; answers what does not end."""
    for question in (TOLD, COUNTED):
        if found := await rest(db, client, operator):
            return found
        since = await operator.now()
        await eventually(partial(db.value, question, since))
    return await rest(db, client, operator)


async def bustle(dsn: str, eventually: Any, seed: int, seconds: float, folder: Path | None = None) -> str:
    """Let it go on for so many seconds; answers what is not true afterwards.

    Where there is a *folder*, a service with runners lives in it.
    """
    async with AsyncExitStack() as stack:
        db = await stack.enter_async_context(ThrowawayDatabase(dsn))
        client = await stack.enter_async_context(holdfast.Client(dsn, schema=db.schema))
        forker = await stack.enter_async_context(forking())
        workers = [{"dsn": db.dsn, "schema": db.schema, "slots": slots} for slots in SLOTS]
        starts: dict[str, Start] = {
            f"worker {one['slots']}": partial(forker.start, bustle=one) for one in workers
        }
        ground = None
        if folder is not None:
            ground = Yard(db, client, forker, folder / "yard", stack)
            starts |= await staff(ground)
        crew = Crew(f"{seed} crew", starts)
        visitors = [Visitor(f"{seed} visitor {nth}", db, client, ground) for nth in range(VISITORS)]
        operator = Operator(db.database, "test")
        for statement in (*TABLES, *VIEWS):
            await db.fetch(statement)
        receiver = await stack.enter_async_context(receiving())
        secret = await operator.deliveries.add("hub", receiver.url, Wish(events=tuple(DeliveryEvent)))
        for queue in QUEUES:
            await operator.queues.key_limit(queue, KEY_LIMIT, create=True)
        await operator.queues.limit("narrow", LIMIT)
        async with asyncio.TaskGroup() as tasks:
            members = [tasks.create_task(crew.keep(name)) for name in starts]
            await asyncio.gather(crew.suffer(seconds), *(one.stay(seconds) for one in visitors))
            found = await settled(db, client, operator, eventually)
            for member in members:
                member.cancel()
        found = found or await kept(db, secret, receiver)
        if ground is not None:
            found = found or await told(db, ground)
        found = found or await untruths(db)
        return "\n".join([f"SOAK_SEED={seed}", *found]) if found else ""


async def test_a_short_bustle_leaves_everything_true(dsn: str, eventually: Any) -> None:
    """A few seconds of it, always with the same dice."""
    assert await bustle(dsn, eventually, seed=1, seconds=3) == ""


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_a_long_bustle_leaves_everything_true(dsn: str, eventually: Any, tmp_path: Path) -> None:
    """Minutes of it, with runners, and with other dice every time."""
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"SOAK_SEED={seed}")
    seconds = float(os.environ.get("SOAK_SECONDS", "120"))
    assert await bustle(dsn, eventually, seed, seconds, tmp_path) == ""
