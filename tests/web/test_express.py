"""The express lane answers as the framework does, and leaves to it whatever is unusual."""

from __future__ import annotations

from collections.abc import AsyncIterator
from gzip import compress
from typing import Any

import httpx
import pytest

import holdfast
from holdfast.runners.conversation import Conversation
from tests.web.conftest import Service
from tests.web.test_runners import offered, problem, register

JSON = "application/json"
# A header that says the same, but not as runners say it: such a request goes the general way.
UNUSUAL = "application/json; charset=utf-8"
PLACE = "/runner/v1/assignments"

SAID: dict[str, tuple[str, bytes]] = {
    "nothing to offer": ("/runner/v1/claim", b"{}"),
    "an idle sync": ("/runner/v1/sync", b'{"free": 0}'),
    "half of a body": ("/runner/v1/claim", b'{"count": '),
    "a misspelt field": ("/runner/v1/claim", b'{"cuont": 1}'),
    "a number as text": ("/runner/v1/sync", b'{"free": "1"}'),
    "a NUL character": (f"{PLACE}/1/1/progress", b'{"note": "a\\u0000b"}'),
    "bad UTF-8": (f"{PLACE}/1/1/progress", b'{"note": "\xff"}'),
    "no such job": (f"{PLACE}/999999/1/start", b"{}"),
    "a job past every number": (f"{PLACE}/9999999999999999999/1/start", b"{}"),
    "an attempt past every number": (f"{PLACE}/1/2147483648/finish", b'{"outcome": "completed"}'),
    "job zero": (f"{PLACE}/0/1/accept", b"{}"),
    "another verb": (f"{PLACE}/1/1/dance", b"{}"),
    "a query": ("/runner/v1/claim?now=1", b"{}"),
}


def shown(answer: httpx.Response) -> tuple[int, str, Any]:
    """What of an answer is the same each time."""
    body = answer.json()
    body.pop("server_time", None)
    return answer.status_code, answer.headers["content-type"], body


@pytest.fixture
async def runner(service: Service) -> httpx.AsyncClient:
    """A runner that has registered."""
    return await register(service)


@pytest.mark.parametrize("name", SAID)
async def test_the_lane_answers_as_the_framework_does(name: str, runner: httpx.AsyncClient) -> None:
    """Status, type and body of an answer do not depend on the way that a request takes."""
    path, body = SAID[name]
    usual = await runner.post(path, content=body, headers={"Content-Type": JSON})
    unusual = await runner.post(path, content=body, headers={"Content-Type": UNUSUAL})
    assert shown(usual) == shown(unusual)


PIECES: dict[str, tuple[str, dict[str, str], bytes]] = {
    "a piece": ("stdout", {"Holdfast-Offset": "0"}, b"hello\n"),
    "a gap": ("stdout", {"Holdfast-Offset": "0", "Holdfast-Gap": "7"}, b""),
    "a packed piece": ("stderr", {"Holdfast-Offset": "0", "Content-Encoding": "gzip"}, compress(b"hello\n")),
    "a wrong offset": ("stdout", {"Holdfast-Offset": "5"}, b"hello\n"),
    "no offset": ("stdout", {}, b"hello\n"),
    "an offset that is no number": ("stdout", {"Holdfast-Offset": "-1"}, b"hello\n"),
    "an unknown coding": ("stdout", {"Holdfast-Offset": "0", "Content-Encoding": "br"}, b"hello\n"),
    "an unknown stream": ("stdin", {"Holdfast-Offset": "0"}, b"hello\n"),
    "a stream with a long name": ("s" * 21, {"Holdfast-Offset": "0"}, b"hello\n"),
}


@pytest.mark.parametrize("name", PIECES)
async def test_logs_are_answered_as_the_framework_does(
    name: str, service: Service, client: holdfast.Client, runner: httpx.AsyncClient
) -> None:
    """Of two like assignments one logs on the lane, and one without a length, on the general way."""
    stream, headers, body = PIECES[name]

    async def unmeasured() -> AsyncIterator[bytes]:
        yield body

    answers = []
    for content in (body, unmeasured()):
        _, place = await offered(client, runner)
        await runner.post(f"{place}/start", json={})
        answer = await runner.patch(f"{place}/logs/{stream}", content=content, headers=headers)
        told = {key: value for key, value in answer.headers.items() if key.startswith("holdfast-")}
        answers.append((answer.status_code, told, answer.json() if answer.is_error else answer.content))
    assert answers[0] == answers[1]
    assert not service.probe.seen("request.failed")


async def test_the_lane_has_the_same_gate(service: Service) -> None:
    """Without a token, and with a wrong one, it refuses as the framework does."""
    await register(service)
    for text in (None, "holdfast_wrong"):
        caller = await service.caller(text=text)
        usual = await caller.post("/runner/v1/claim", json={})
        unusual = await caller.post("/runner/v1/claim", content=b"{}", headers={"Content-Type": UNUSUAL})
        assert problem(usual) == (401, "token-invalid")
        assert shown(usual) == shown(unusual)
        assert usual.headers["www-authenticate"] == unusual.headers["www-authenticate"]


async def test_both_ways_may_be_mixed(
    service: Service, client: holdfast.Client, runner: httpx.AsyncClient
) -> None:
    """What was offered on one way is finished on the other, and counted under the same route."""
    _, place = await offered(client, runner)
    ended = b'{"outcome": "completed"}'
    first = await runner.post(f"{place}/finish", content=ended, headers={"Content-Type": UNUSUAL})
    again = await runner.post(f"{place}/finish", content=ended, headers={"Content-Type": JSON})
    assert (first.json()["repeated"], again.json()["repeated"]) == (False, True)
    route = "/runner/v1/assignments/{job}/{attempt}/finish"
    await service.probe.wait_for("request.ended", lambda fields: fields["route"] == route, times=2)


async def test_a_body_whose_length_is_not_told_is_taken(runner: httpx.AsyncClient) -> None:
    """A body in chunks is read by the framework, which knows how to bound it."""

    async def parts() -> AsyncIterator[bytes]:
        yield b'{"count"'
        yield b": 1}"

    answer = await runner.post("/runner/v1/claim", content=parts(), headers={"Content-Type": JSON})
    assert (answer.status_code, answer.json()["offers"]) == (200, [])


async def test_a_body_that_is_too_long_is_refused(runner: httpx.AsyncClient) -> None:
    """Before it is read, and with the documented problem."""
    answer = await runner.post("/runner/v1/claim", content=b" " * 5_000_000, headers={"Content-Type": JSON})
    assert problem(answer) == (413, "body-too-large")


async def test_a_fault_is_answered_and_told(
    service: Service, runner: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller hears that there was one and no more; the log gets the error."""

    async def broken(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(Conversation, "claim", broken)
    answer = await runner.post("/runner/v1/claim", json={})
    assert problem(answer) == (500, "fault")
    assert "secret" not in answer.text
    [failed] = service.probe.seen("request.failed")
    assert str(failed["error"]) == "a secret"


async def test_what_runners_ask_all_day_is_on_the_lane(service: Service) -> None:
    """The lane is there for speed: a route that leaves it is slower by half, and says so here."""
    on_lane = {stop.template.rpartition("/")[2] for stop in service.server.express.stops}
    assert on_lane == {"sync", "claim", "accept", "start", "progress", "finish", "{stream}"}
