"""The logs of runners over real HTTP: in by offset, out as lines and as bytes."""

import gzip
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import httpx
import pytest

import holdfast
from holdfast.client.operator import Operator
from holdfast.model.token import Role
from tests.web.conftest import Serve, Service
from tests.web.test_heads import line_to
from tests.web.test_runners import MACHINE, enqueue, offered, register


@dataclass
class Desk:
    """A runner with an assignment, and who reads what it writes."""

    runner: httpx.AsyncClient
    assignment: httpx.AsyncClient
    viewer: httpx.AsyncClient
    service: Service
    job_id: int

    async def send(self, offset: int, body: bytes = b"", **headers: str) -> httpx.Response:
        """Append to stdout with the assignment's own token."""
        path = f"/runner/v1/assignments/{self.job_id}/1/logs/stdout"
        told = {"Holdfast-Offset": str(offset)} | {
            name.replace("_", "-"): text for name, text in headers.items()
        }
        return await self.assignment.patch(path, content=body, headers=told)

    async def finish(self, **members: Any) -> httpx.Response:
        """Report the end, with the runner's token."""
        report = {"number": 9, "outcome": "completed"} | members
        return await self.runner.post(f"/runner/v1/assignments/{self.job_id}/1/finish", json=report)

    async def get(self, path: str, **query: Any) -> httpx.Response:
        """Ask for something below the job."""
        return await self.viewer.get(f"/api/v1/jobs/{self.job_id}/{path}", params=query)


@pytest.fixture
async def desk(service: Service, client: holdfast.Client) -> Desk:
    """An assignment that runs."""
    runner = await register(service)
    job_id = await enqueue(client)
    [offer] = (await runner.post("/runner/v1/claim", json={"number": 1})).json()["offers"]
    await runner.post(f"/runner/v1/assignments/{job_id}/1/start", json={"number": 2})
    assignment = await service.caller(text=offer["token"])
    return Desk(runner, assignment, await service.caller(Role.VIEWER), service, job_id)


async def test_bytes_come_in_at_their_offset_and_go_out_as_lines(desk: Desk) -> None:
    """202 tells what the server has, 416 corrects a wrong offset, and a repeat is harmless."""
    assert (await desk.send(0, b"one\ntwo")).headers["Holdfast-Offset"] == "7"
    packed = gzip.compress(b"!\nthree\n")
    assert (await desk.send(7, packed, Content_Encoding="gzip")).headers["Holdfast-Offset"] == "15"
    assert (await desk.send(7, packed, Content_Encoding="gzip")).headers["Holdfast-Offset"] == "15"
    wrong = await desk.send(20, b"x")
    assert (wrong.status_code, wrong.headers["Holdfast-Offset"], wrong.json()["facts"]["size"]) == (
        416,
        "15",
        15,
    )
    other = await desk.send(0, b"ONE")
    assert (other.status_code, other.json()["type"]) == (409, "urn:holdfast:problem:log-refused")
    lines = (await desk.get("logs")).json()
    assert [line["line"] for line in lines["lines"]] == ["one", "two!", "three"]
    assert (await desk.get("logs", after=lines["next"])).json()["lines"] == []
    tail = (await desk.get("logs/tail", limit=1)).json()
    assert [line["line"] for line in tail["lines"]] == ["three"]


async def test_nothing_is_kept_of_an_empty_piece(desk: Desk) -> None:
    """It asks where the stream goes on, and makes none where there is none."""
    assert (await desk.send(0)).headers["Holdfast-Offset"] == "0"
    await desk.send(0, b"abc")
    assert (await desk.send(3)).headers["Holdfast-Offset"] == "3"
    assert await desk.service.db.value("select count(*) from holdfast.log_chunks") == 1


async def test_a_repeat_is_passed_over_and_only_what_is_new_is_kept(desk: Desk) -> None:
    """Whoever did not hear an answer sends again, and may have more to send by then."""
    await desk.send(0, b"abc")
    for offset, body, size in ((0, b"abc", "3"), (1, b"bcdef", "6"), (2, b"c", "6")):
        assert (await desk.send(offset, body)).headers["Holdfast-Offset"] == size
    assert (await desk.get("attempts/1/logs/stdout")).content == b"abcdef"


async def test_a_log_is_closed_with_its_sum(desk: Desk) -> None:
    """A wrong one ends the job all the same and is remembered; what is closed gets no longer."""
    await desk.send(0, b"abc")
    told = {"stdout": {"size": 3, "sha256": sha256(b"abd").hexdigest()}}
    assert (await desk.finish(logs=told)).json()["outcome"] == "completed"
    [stream] = (await desk.get("logs/streams")).json()
    assert (stream["size"], stream["intact"]) == (3, False)
    desk.assignment = desk.runner
    assert (await desk.send(0, b"abc")).headers["Holdfast-Offset"] == "3"
    longer = await desk.send(3, b"d")
    assert (longer.status_code, longer.json()["type"]) == (409, "urn:holdfast:problem:log-refused")


async def test_what_was_taken_from_a_runner_says_nothing_more(desk: Desk) -> None:
    """Its log ends where it was lost, whichever token comes with the rest."""
    await desk.send(0, b"before")
    await desk.runner.post("/runner/v1/sync", json={"number": 9, "held": []})
    statuses = [(await desk.send(6, b"after")).status_code]
    desk.assignment = desk.runner
    statuses.append((await desk.send(6, b"after")).status_code)
    assert statuses[0] in (401, 409)
    assert statuses[1] == 409
    assert (await desk.get("attempts/1/logs/stdout")).content == b"before"


async def test_a_range_is_read_as_far_as_the_next_gap(desk: Desk) -> None:
    """Then the gap is told, and the bytes behind it come."""
    await desk.send(0, b"head")
    assert (await desk.send(4, Holdfast_Gap="96")).headers["Holdfast-Offset"] == "100"
    await desk.send(100, b"tail")
    first = await desk.get("attempts/1/logs/stdout", offset=1)
    assert (first.content, first.headers["Holdfast-Next"], first.headers["Holdfast-Size"]) == (
        b"ead",
        "4",
        "104",
    )
    gap = await desk.get("attempts/1/logs/stdout", offset=4)
    assert (gap.content, gap.headers["Holdfast-Gap"], gap.headers["Holdfast-Next"]) == (b"", "96", "100")
    assert (await desk.get("attempts/1/logs/stdout", offset=100, limit=3)).content == b"tai"
    assert (await desk.get("attempts/1/logs/stderr")).status_code == 404


async def test_an_end_waits_for_the_whole_log(desk: Desk) -> None:
    """What the server lacks is asked for; then the end is accepted and the sum checked."""
    await desk.send(0, b"abc")
    told = {"stdout": {"size": 5, "sha256": sha256(b"abcde").hexdigest()}}
    lacking = await desk.finish(logs=told)
    assert (lacking.status_code, lacking.json()["type"]) == (409, "urn:holdfast:problem:logs-incomplete")
    await desk.send(3, b"de")
    assert (await desk.finish(logs=told)).json()["outcome"] == "completed"
    assert (await desk.finish(logs=told)).json()["repeated"] is True
    [stream] = (await desk.get("logs/streams")).json()
    assert (stream["size"], stream["intact"]) == (5, True)


async def test_the_rest_comes_with_the_runners_token_after_the_end(desk: Desk) -> None:
    """Bytes that were under way are not lost, whoever was faster."""
    await desk.send(0, b"in time\n")
    await desk.finish()
    desk.assignment = desk.runner
    assert (await desk.send(8, b"late\n")).headers["Holdfast-Offset"] == "13"
    assert (await desk.get("attempts/1/logs/stdout")).content == b"in time\nlate\n"


async def test_a_cancel_is_heard_with_the_next_bytes(desk: Desk, service: Service) -> None:
    """Whatever call comes next carries it."""
    assert "Holdfast-Cancel" not in (await desk.send(0, b"a")).headers
    await Operator(service.db.database, "me").jobs.cancel(desk.job_id)
    assert (await desk.send(1, b"b")).headers["Holdfast-Cancel"] == "requested"


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Holdfast-Offset": "x"}, b"a", 400),
        ({"Holdfast-Offset": "-1"}, b"a", 400),
        ({}, b"a", 400),
        ({"Holdfast-Offset": "0", "Content-Encoding": "br"}, b"a", 400),
        ({"Holdfast-Offset": "0", "Content-Encoding": "gzip"}, b"junk", 400),
        ({"Holdfast-Offset": "0", "Content-Encoding": "gzip"}, gzip.compress(bytes(2**24)), 413),
        ({"Holdfast-Offset": "0"}, bytes(2**22 + 1), 413),
        ({"Holdfast-Offset": "0", "Holdfast-Gap": "9"}, b"a", 400),
    ],
)
async def test_bad_bytes_are_a_problem(desk: Desk, headers: dict[str, str], body: bytes, status: int) -> None:
    """Nothing of them is kept."""
    path = f"/runner/v1/assignments/{desk.job_id}/1/logs/stdout"
    answer = await desk.runner.patch(path, content=body, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert (await desk.get("logs/streams")).json() == []


async def test_nobody_writes_for_another(desk: Desk, service: Service) -> None:
    """Another runner is told how things stand; a token of one assignment is good for no other."""
    path = f"/runner/v1/assignments/{desk.job_id}/1/logs/stdout"
    text, _ = await service.token(Role.REGISTRAR, "another registrar")
    machine = MACHINE | {"name": "build-2"}
    registered = await (await service.caller(text=text)).post("/runner/v1/register", json=machine)
    stranger = await service.caller(text=registered.json()["token"])
    answer = await stranger.patch(path, content=b"x", headers={"Holdfast-Offset": "0"})
    assert (answer.status_code, answer.json()["facts"]["runner"]) == (409, "build-1")
    other = path.replace("/1/logs", "/2/logs")
    assert (await desk.assignment.patch(other, headers={"Holdfast-Offset": "0"})).status_code == 403


async def test_an_end_tells_a_stranger_nothing_of_the_log(desk: Desk, service: Service) -> None:
    """How long a stream is, only its writer hears; a stranger is told how the job stands."""
    await desk.send(0, b"abc")
    desk.runner = await register(service, name="build-2")
    told = {"stdout": {"size": 5, "sha256": sha256(b"abcde").hexdigest()}}
    answer = await desk.finish(logs=told)
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:holdfast:problem:assignment-stale")
    assert "size" not in answer.json()["facts"]
    held = {"job": desk.job_id, "attempt": 1, "state": "ended"}
    report = {"outcome": "completed", "logs": told}
    synced = await desk.runner.post("/runner/v1/sync", json={"held": [held | {"report": report}]})
    [refused] = synced.json()["refused"]
    assert refused["type"] == "urn:holdfast:problem:assignment-stale"


async def test_the_limit_of_a_log_is_a_setting_of_the_service(serve: Serve, client: holdfast.Client) -> None:
    """What goes beyond it is cut off, and the answer says where."""
    service = await serve(log_limit=1024)
    runner = await register(service)
    _, place = await offered(client, runner)
    sent = await runner.patch(f"{place}/logs/stdout", content=b"x" * 1500, headers={"Holdfast-Offset": "0"})
    assert (sent.status_code, sent.headers.get("Holdfast-Cut")) == (202, "1024")


async def test_a_body_cut_off_is_not_taken_for_an_empty_one(desk: Desk) -> None:
    """A runner that dies while it sends has asked for nothing."""
    head = (
        f"PATCH /runner/v1/assignments/{desk.job_id}/1/logs/stdout HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: {desk.assignment.headers['Authorization']}\r\n"
        "Holdfast-Offset: 0\r\nContent-Length: 100\r\n\r\nabc"
    )
    async with line_to(desk.service) as (_, writer):
        writer.write(head.encode())
    ended = await desk.service.probe.wait_for("request.ended", lambda fields: fields["method"] == "PATCH")
    assert ended["status"] == 400
