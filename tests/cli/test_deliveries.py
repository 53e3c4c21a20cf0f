"""`holdfast deliveries`: endpoints, what they were told, and the service that carries it."""

import asyncio
import json
from typing import Any

import pytest

from holdfast.runners.logs import LogIntake, LogPatch
from holdfast.store.log_chunks import StreamKey
from tests.maintenance.receiver import receiving
from tests.store.scene import Scene, fence

pytestmark = pytest.mark.usefixtures("here")


async def test_a_service_delivers_what_ends(holdfast_command: Any, start_holdfast: Any, scene: Scene) -> None:
    """From the command that adds an endpoint to the letter that arrives there, with nothing else running."""
    async with receiving() as receiver:
        added = await holdfast_command("deliveries", "add", "hub", receiver.url, "--queue", "default")
        assert (added.code, added.out[:4]) == (0, "hfs_")
        assert "127.0.0.1 is no public address: set deliveries_private where `holdfast serve`" in added.err
        away = await holdfast_command("deliveries", "add", "away", "https://example.com", "--queue", "x")
        assert "deliveries_private" not in away.err
        [_, shown] = json.loads((await holdfast_command("deliveries", "endpoints", "--json")).out)
        assert (shown["name"], shown["queues"]) == ("hub", ["default"])
        assert "secret" not in shown
        await start_holdfast("serve", "--port", "0", HOLDFAST_DELIVERIES_PRIVATE="true")
        job = await scene.one()
        await scene.complete(job)
        async with asyncio.timeout(30):
            while not receiver.got:  # noqa: ASYNC110 - what another process sends has no event here
                await asyncio.sleep(0.05)
        assert json.loads(receiver.got[0][1])["job"]["id"] == job.id
        listed = await holdfast_command("deliveries", "list", "--state", "delivered")
        assert "job.completed" in listed.out
        again = await holdfast_command("deliveries", "redeliver", "1", "--reason", "they lost it")
        assert (again.code, again.out[:15]) == (0, "delivery 1: job")
        assert (await holdfast_command("deliveries", "remove", "hub")).code == 0
        assert (await holdfast_command("deliveries", "list")).out == "no delivery fits\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["add", "hub", "ftp://example.com"], 2, "give an address such as https://host/path"),
        (["remove", "hub"], 1, "endpoint 'hub' is unknown: see `holdfast deliveries endpoints`"),
        (["redeliver", "7"], 1, "delivery 7 does not exist"),
    ],
)
async def test_wrong_use_is_told(holdfast_command: Any, arguments: list[str], code: int, told: str) -> None:
    """One sentence, and the exit code of its sort."""
    done = await holdfast_command("deliveries", *arguments)
    assert done.code == code
    assert told in done.err


async def test_the_log_of_a_runner_is_printed_and_followed(holdfast_command: Any, scene: Scene) -> None:
    """Lines of its streams, whole; with --tail the last ones; --follow ends with the job."""
    worker_id = await scene.worker()
    job = await scene.one(worker_id)
    intake, key = LogIntake(scene.db.database), StreamKey(fence(job), "stdout", worker_id)
    await intake.append(key, LogPatch(0, b"one\ntwo\nth"))
    done = await holdfast_command("jobs", "logs", str(job.id))
    assert [line.split()[-1] for line in done.out.splitlines()] == ["one", "two"]
    following = asyncio.create_task(
        holdfast_command("jobs", "logs", str(job.id), "--tail", "2", "--follow", "--json")
    )
    await intake.append(key, LogPatch(10, b"ree\nend"))
    await scene.complete(job)
    lines = [json.loads(line) for line in (await following).out.splitlines()]
    told = [line["line"] for line in lines]
    assert told[-2:] == ["three", "end"]
    assert len(told) == len(set(told)), "a line is told twice"
    assert {line["level"] for line in lines} == {"stdout"}
