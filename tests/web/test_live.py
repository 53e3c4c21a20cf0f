"""Event streams over real HTTP: what happens is told, from where a reader was."""

import asyncio
import json
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from holdfast.client import follow
from holdfast.client.operator import Operator
from holdfast.errors import DatabaseUnavailable
from holdfast.model.token import Role
from holdfast.runners.logs import LogIntake, LogPatch
from holdfast.store import attempts
from holdfast.store.database import Database
from holdfast.store.log_chunks import StreamKey
from holdfast.store.statement import Statement
from tests.store.scene import Scene, fence
from tests.web.conftest import Serve, Service

HERE = "from pg_stat_activity where datname = current_database()"


class Reader:
    """Reads events, one at a time."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()
        self.id = ""

    async def next(self) -> tuple[str, Any]:
        """The next event, by name and data."""
        name, data = "", ""
        async with asyncio.timeout(20):
            async for line in self._lines:
                field, _, value = line.partition(": ")
                match field:
                    case "event":
                        name = value
                    case "id":
                        self.id = value
                    case "data":
                        data = value
                    case "" if name:
                        return name, json.loads(data)
        return "", None

    async def until(self, name: str, **members: Any) -> Any:
        """The first event of that name with these members."""
        while True:
            told, data = await self.next()
            assert told, f"the stream has ended without {name} {members}"
            if told == name and all(data.get(member) == value for member, value in members.items()):
                return data


@asynccontextmanager
async def reading(caller: httpx.AsyncClient, path: str, since: str = "") -> AsyncIterator[Reader]:
    """Open an event stream."""
    headers = {"Last-Event-ID": since} if since else {}
    async with caller.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Reader(response)


async def log(scene: Scene, job: Any, offset: int, body: bytes, *, gap: int = 0) -> None:
    """Log something for a held job, or that something is lost."""
    worker = await scene.db.value("select worker_id from holdfast.live_jobs where job_id = $1", job.id)
    key = StreamKey(fence(job), "stdout", worker)
    await LogIntake(scene.db.database).append(key, LogPatch(offset, body, gap=gap))


async def test_a_job_is_followed_to_its_end(scene: Scene, service: Service) -> None:
    """First how it stands, then its progress and its log, at last its end, and then the stream ends."""
    job = await scene.one()
    async with reading(await service.caller(Role.VIEWER), f"/api/v1/jobs/{job.id}/events") as reader:
        assert (await reader.until("job"))["state"] == "running"
        await log(scene, job, 0, "grüße\n".encode())
        assert (await reader.until("log"))["text"] == "grüße\n"
        await scene.run(attempts.report_progress(fence(job), 0.5, "half"))
        await reader.until("job", progress=0.5, note="half")
        await log(scene, job, 8, b"bye\n")
        await scene.complete(job)
        assert (await reader.until("log"))["offset"] == 8
        await reader.until("job", state="completed")
        assert await reader.next() == ("", None)


async def test_a_log_goes_on_where_its_reader_was(scene: Scene, service: Service) -> None:
    """With the last id, nothing is told twice and nothing is left out."""
    job = await scene.one()
    caller = await service.caller(Role.VIEWER)
    path = f"/api/v1/jobs/{job.id}/events"
    await log(scene, job, 0, b"one\n")
    async with reading(caller, path) as reader:
        await reader.until("log", text="one\n")
        last = reader.id
    await log(scene, job, 4, b"two\n")
    async with reading(caller, path, last) as reader:
        assert (await reader.until("log"))["text"] == "two\n"


@pytest.mark.parametrize("letter", ["ä", "€", "😀"])
async def test_a_reader_who_comes_back_inside_a_letter_is_told_it_whole(
    scene: Scene, service: Service, letter: str
) -> None:
    """Whoever read as far as there was not told of its first bytes either, wherever the cut is."""
    job, caller, path = await scene.one(), await service.caller(Role.VIEWER), "/api/v1/jobs/{}/events"
    told, last, data = "", "", f"a{letter}b{letter}\n".encode()
    for place in range(len(data)):
        await log(scene, job, place, data[place : place + 1])
        async with reading(caller, path.format(job.id), last) as reader:
            told += (await reader.until("log")).get("text", "")
            last = reader.id
    assert told == data.decode()


async def test_a_reader_who_comes_back_behind_a_gap_is_told_no_letter_of_before(
    scene: Scene, service: Service
) -> None:
    """The rest of a letter whose beginning is lost is none."""
    job, caller, path = await scene.one(), await service.caller(Role.VIEWER), "/api/v1/jobs/{}/events"
    await log(scene, job, 0, "a€".encode()[:2])
    await log(scene, job, 2, b"", gap=1)
    async with reading(caller, path.format(job.id)) as reader:
        await reader.until("log", missing=1)
        last = reader.id
    await log(scene, job, 3, "€".encode()[2:])
    async with reading(caller, path.format(job.id), last) as reader:
        assert (await reader.until("log"))["text"] == "\ufffd"


async def test_a_reader_who_was_away_hears_what_it_missed(scene: Scene, service: Service) -> None:
    """The ends of a queue from its last id on; another queue's are not its business."""
    caller = await service.caller(Role.VIEWER)
    async with reading(caller, "/api/v1/events?queue=default") as reader:
        await reader.until("begun")
        first = await scene.one()
        await scene.complete(first)
        await reader.until("job", job_id=first.id, state="completed")
        last = reader.id
    missed, other = await scene.one(), await scene.one(await scene.worker("default"))
    await scene.enqueue(queue="other")
    await scene.complete(missed)
    # So long ago that the feed would not tell of it by itself; the reader was away for longer.
    await scene.db.fetch(
        "update holdfast.finished_jobs set finished_at = finished_at - interval '30 seconds' "
        "where job_id = $1",
        missed.id,
    )
    moment, _, job_id = last.partition("-")
    last = f"{int(moment) - 60_000_000}-{job_id}"
    async with reading(caller, "/api/v1/events?queue=default", last) as reader:
        await reader.until("job", job_id=missed.id, state="completed")
        await scene.complete(other)
        told = await reader.until("job", job_id=other.id, state="completed")
        assert told["queue"] == "default"


async def test_a_reader_cut_off_while_it_hears_what_it_missed_goes_on_there(
    scene: Scene, service: Service
) -> None:
    """The id it has come to is behind what it was told, not behind all that was found with it."""
    caller, missed = await service.caller(Role.VIEWER), [await scene.one() for _ in range(3)]
    async with reading(caller, "/api/v1/events") as reader:
        await reader.until("begun")
        moment, _, job_id = reader.id.partition("-")
    for job in missed:
        await scene.complete(job)
    # So long ago that no look would see them again by itself.
    await scene.db.fetch(
        "update holdfast.finished_jobs set finished_at = finished_at - interval '30 seconds'"
    )
    last, told = f"{int(moment) - 60_000_000}-{job_id}", set()
    async with reading(caller, "/api/v1/events", last) as reader:
        told.add((await reader.until("job", state="completed"))["job_id"])
        last = reader.id
    async with reading(caller, "/api/v1/events", last) as reader:
        while told != {job.id for job in missed}:
            told.add((await reader.until("job", state="completed"))["job_id"])


async def test_a_reader_goes_on_at_another_process(scene: Scene, serve: Serve) -> None:
    """An id is a place in the database: one that another process has told leads to the very next thing."""
    first, second, job = await serve(), await serve(), await scene.one()
    token, _ = await first.token(Role.VIEWER)
    here, there = await first.caller(text=token), await second.caller(text=token)
    path = f"/api/v1/jobs/{job.id}/events"
    await log(scene, job, 0, b"one\n")
    async with reading(here, path) as reader, reading(here, "/api/v1/events") as wide:
        await reader.until("log", text="one\n")
        await wide.until("begun")
        place, everything = reader.id, wide.id
    await first.server.stop()
    await log(scene, job, 4, b"two\n")
    await scene.complete(job)
    async with reading(there, path, place) as reader:
        assert (await reader.until("log"))["text"] == "two\n"
    async with reading(there, "/api/v1/events", everything) as wide:
        await wide.until("job", job_id=job.id, state="completed")


async def test_who_was_away_too_long_is_told_so(service: Service) -> None:
    """It has to look for itself; a place that is none is refused."""
    caller = await service.caller(Role.VIEWER)
    async with reading(caller, "/api/v1/events", "1000000-1") as reader:
        await reader.until("skipped")
    answer = await caller.get("/api/v1/events", headers={"Last-Event-ID": "junk"})
    assert (answer.status_code, answer.json()["status"]) == (400, 400)


async def test_a_job_that_never_was_cannot_be_followed(service: Service) -> None:
    """It is a problem, not an empty stream."""
    answer = await (await service.caller(Role.VIEWER)).get("/api/v1/jobs/999/events")
    assert answer.status_code == 404


async def test_a_stop_ends_every_stream(scene: Scene, service: Service) -> None:
    """Readers are told to come again, not that they fell behind, and do not hold the stop up."""
    job, caller = await scene.one(), await service.caller(Role.VIEWER)
    async with (
        reading(caller, f"/api/v1/jobs/{job.id}/events") as reader,
        reading(caller, "/api/v1/events") as wide,
    ):
        await reader.until("job")
        await wide.until("begun")
        async with asyncio.timeout(3):
            await service.server.stop()
        for one in (reader, wide):
            assert (await one.until("dropped"))["detail"].startswith("the service stops: connect again")


async def test_a_stream_whose_database_goes_away_ends_as_one_to_go_on_with(
    scene: Scene, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reader is told to come again, from where it was."""
    job, caller, run = await scene.one(), await service.caller(Role.VIEWER), Database.run
    path = f"/api/v1/jobs/{job.id}/events"

    async def away(database: Database, statement: Statement[Any], *rest: Any) -> Any:
        if statement.name == "follow_logs":
            raise DatabaseUnavailable("it is away")
        return await run(database, statement, *rest)

    async with reading(caller, path) as reader:
        await reader.until("job")
        with monkeypatch.context() as patched:
            patched.setattr(Database, "run", away)
            await log(scene, job, 0, b"one\n")
            assert (await reader.until("dropped"))["detail"].startswith("the database cannot be reached")
            assert await reader.next() == ("", None)
    async with reading(caller, path, reader.id) as again:
        assert (await again.until("log"))["text"] == "one\n"


async def test_a_thousand_idle_listeners_share_one_connection_that_listens(
    scene: Scene, service: Service, eventually: Callable[..., Awaitable[Any]]
) -> None:
    """They cost no session each, and what happens reaches them all."""
    # Both ends of a thousand connections are in this process.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, most) if most > 0 else 8192, most))
    job = await scene.one()
    token, _ = await service.token(Role.VIEWER)
    host, _, port = service.url.removeprefix("http://").partition(":")
    ask = f"GET /api/v1/events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    readers = []
    for _ in range(1000):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(ask)
        readers.append((reader, writer))
    await asyncio.gather(*(reader.readuntil(b"event: begun") for reader, _ in readers))
    # The pool of the service, and one session that listens for all; those of the test before may still leave.
    await eventually(lambda: scene.db.value(f"select count(*) = 1 {HERE} and query ilike 'listen %'"))
    most = 1 + scene.db.config.pool_size
    await eventually(lambda: scene.db.value(f"select count(*) <= {most} {HERE}"))
    await scene.complete(job)
    async with asyncio.timeout(20):
        await asyncio.gather(*(reader.readuntil(b'"state":"completed"') for reader, _ in readers))
    for _, writer in readers:
        writer.close()


async def test_a_reader_that_takes_nothing_is_cut_off(
    scene: Scene, serve: Serve, eventually: Callable[..., Awaitable[Any]]
) -> None:
    """It does not hold up who reads, and the kernel ends its connection."""
    # More than a full machine takes from the reader that does take something.
    service = await serve(reader_patience=4.0)
    job = await scene.one()
    token, _ = await service.token(Role.VIEWER)
    host, _, port = service.url.removeprefix("http://").partition(":")
    ask = (
        f"GET /api/v1/jobs/{job.id}/events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n"
    )
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lazy.connect((host, int(port)))
    lazy.sendall(ask.encode())
    try:
        async with reading(await service.caller(text=token), f"/api/v1/jobs/{job.id}/events") as reader:
            for n in range(12):
                await log(scene, job, n * 2**20, bytes([97 + n]) * 2**20)
                await reader.until("log", offset=n * 2**20)
        await eventually(lambda: gone(service))
    finally:
        lazy.close()


async def gone(service: Service) -> bool:
    """Whether nobody listens any more."""
    return not service.server.listeners


@pytest.mark.parametrize("path", ["/api/v1/events", "/api/v1/jobs/{}/events"], ids=["wide", "of a job"])
async def test_a_stream_ends_when_its_token_is_revoked(
    scene: Scene, service: Service, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """At once, however little happens; who connects again is refused."""
    monkeypatch.setattr(follow, "SILENCE", 3600.0)
    job = await scene.one()
    text, record = await service.token(Role.VIEWER)
    caller = await service.caller(text=text)
    async with reading(caller, path.format(job.id)) as reader:
        assert (await reader.next())[0] in ("begun", "job")
        await Operator(scene.db.database, "test").tokens.revoke(record.id)
        name, data = await reader.next()
        assert (name, "is revoked or has expired" in data["detail"]) == ("dropped", True)
        assert await reader.next() == ("", None)
    assert not service.server.listeners
    assert (await caller.get(path.format(job.id))).status_code == 401


async def test_nothing_is_told_once_a_token_has_expired(
    scene: Scene, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody notifies of that: whatever there is to tell is told only to who may hear it by then."""
    monkeypatch.setattr("holdfast.web.gate.REMEMBERED", 0.0)
    text, record = await service.token(Role.VIEWER)
    async with reading(await service.caller(text=text), "/api/v1/events") as reader:
        assert (await reader.next())[0] == "begun"
        await scene.db.fetch(
            "update holdfast.tokens set expires_at = holdfast.now() where id = $1", record.id
        )
        await scene.enqueue()
        assert (await reader.next())[0] == "dropped"


async def test_who_waits_for_a_job_with_a_revoked_token_is_told_nothing(
    scene: Scene, service: Service
) -> None:
    """The answer comes when the job has ended, and is a refusal."""
    job = await scene.one()
    text, record = await service.token(Role.VIEWER)
    caller = await service.caller(text=text)
    waiting = asyncio.create_task(caller.get(f"/api/v1/jobs/{job.id}/wait"))
    async with asyncio.timeout(20):
        while not service.server.watch.waiters(job.id):  # noqa: ASYNC110 - it says nothing when it waits
            await asyncio.sleep(0.005)
    await Operator(scene.db.database, "test").tokens.revoke(record.id)
    while (await caller.get("/api/v1/jobs")).status_code != 401:
        pass
    await scene.complete(job)
    assert (await waiting).status_code == 401
