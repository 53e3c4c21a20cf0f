"""`holdfast jobs show` says why a job for runners waits, on the database and over the service."""

from __future__ import annotations

import json
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

import holdfast
from holdfast.cli import main
from holdfast.client.operator import Operator
from holdfast.rules.liveness import Intervals
from holdfast.testing import ThrowawayDatabase
from tests.cli.test_runner_jobs import begun, shown, ways
from tests.web.conftest import Serve, Service, serve  # noqa: F401 - the last one is a fixture
from tests.web.test_runners import enqueue, register

# With these a runner is offline after 15 s, and lost somewhat later than after 30 s.
INTERVALS = Intervals.losing_after(30)
SILENCE = "update holdfast.workers set renewed_at = renewed_at - interval '16 seconds'"


@pytest.fixture
async def service(serve: Serve) -> Service:  # noqa: F811
    """A service that expects to hear its runners more often than usual."""
    return await serve(intervals=INTERVALS)


@dataclass(frozen=True)
class Scene:
    """What a test sets up a waiting job with."""

    service: Service
    db: ThrowawayDatabase
    client: holdfast.Client

    @property
    def operator(self) -> Operator:
        """Acts as ada."""
        return Operator(self.db.database, "ada")


async def paused(scene: Scene) -> int:
    """A job in a queue that is switched off, with a runner that has nothing to do."""
    await register(scene.service)
    await scene.operator.queues.pause("default", create=True)
    return await enqueue(scene.client)


async def limited(scene: Scene) -> int:
    """A job in a queue where as many run as may."""
    runner = await register(scene.service, slots=2)
    await scene.operator.queues.limit("default", 1, create=True)
    await enqueue(scene.client)
    await begun(runner)
    return await enqueue(scene.client)


async def unlabelled(scene: Scene) -> int:
    """A job that asks for more than its runner has."""
    await register(scene.service, labels=["gpu"])
    return await enqueue(scene.client, labels=["gpu", "arm64"])


async def busy(scene: Scene) -> int:
    """A job behind another one on the only runner."""
    runner = await register(scene.service, slots=1)
    await enqueue(scene.client)
    await begun(runner)
    return await enqueue(scene.client)


async def crowded(scene: Scene) -> int:
    """A job whose runner has a slot, but as much of its queue as it may."""
    runner = await register(scene.service, slots=2, capacity={"default": 1})
    await enqueue(scene.client)
    await begun(runner)
    return await enqueue(scene.client)


async def pinned(scene: Scene) -> int:
    """A job for a runner that has not been heard for longer than this service takes for offline."""
    await register(scene.service)
    await scene.db.fetch(SILENCE)
    return await enqueue(scene.client, runner="build-1")


async def drained(scene: Scene) -> int:
    """A job whose only runner is to take nothing new."""
    await register(scene.service)
    await scene.operator.workers.drain(await scene.db.value("select id from holdfast.workers"), "new disks")
    return await enqueue(scene.client)


async def unserved(scene: Scene) -> int:
    """A job in a queue that no runner works on."""
    return await enqueue(scene.client, queue="builds")


WHY: list[tuple[Callable[[Scene], Awaitable[int]], str]] = [
    (paused, "queue 'default' is paused: `holdfast queues resume default` lets it go on"),
    (
        limited,
        "queue 'default' is at its limit, 1 of at most 1 running: "
        "`holdfast queues limit default N` raises it",
    ),
    (unlabelled, "of 1 runner in queue 'default' none has the labels arm64, gpu"),
    (busy, "all slots (1) of 1 runner are busy"),
    (crowded, "1 runner could take it, but without capacity for more of queue 'default'"),
    (pinned, "it is pinned to runner build-1, which is offline"),
    (drained, "every runner that could take it is draining (1): `holdfast workers resume ID`"),
    (unserved, "no runner works on queue 'builds': start one with `holdfast runner --queues builds`"),
]


@pytest.mark.parametrize(("scenery", "sentence"), WHY, ids=[scenery.__name__ for scenery, _ in WHY])
async def test_a_waiting_job_says_why(
    service: Service,
    db: ThrowawayDatabase,
    client: holdfast.Client,
    scenery: Callable[[Scene], Awaitable[int]],
    sentence: str,
) -> None:
    """One sentence, the same for people and as JSON, on the database and over the service."""
    job_id = str(await scenery(Scene(service, db, client)))
    for way in await ways(service, db):
        assert f"\nwaits        {sentence}\n" in await shown(way, "jobs", "show", job_id)
        told = json.loads(await shown(way, "jobs", "show", job_id, "--json"))
        assert told["why"] == sentence


@pytest.mark.parametrize("sentence", [one for _, one in WHY if "`" in one])
def test_the_remedy_is_a_command_that_exists(sentence: str) -> None:
    """What stands between the quotes is taken by the command line."""
    words = shlex.split(sentence.split("`")[1])
    assert words[0] == "holdfast"
    done = CliRunner().invoke(main.app, [*words[1:], "--help"])
    assert done.exit_code == 0, done.output


async def test_whoever_follows_a_command_is_told_why_it_waits(
    start_holdfast: Any, db: ThrowawayDatabase, client: holdfast.Client, eventually: Any
) -> None:
    """Once, on stderr, after a few seconds in which no runner took it."""
    way = {"HOLDFAST_DATABASE_URL": db.dsn, "HOLDFAST_SCHEMA": db.schema}
    program = await start_holdfast("command", "--queue", "builds", "--follow", "--", "make", **way)

    async def told() -> bool:
        return len(program.lines) == 2

    await eventually(told)
    assert program.lines == [
        "job 1\n",
        "job 1 waits: no runner works on queue 'builds': start one with `holdfast runner --queues builds`\n",
    ]
    await client.cancel(1)
    assert await program.ended() == 1
    assert program.lines[2:] == ["job 1 cancelled: cancelled by application\n"]
