"""What answers in the place of the server is no word of the server's, whatever its status."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.runners.agent import execution
from holdfast.testing import Probe
from tests.runners.agent.counterpart import Answer, Counterpart
from tests.runners.agent.test_agent import ended

PAGE = b"<html>We will be back soon.</html>"
STRANGERS: list[Answer] = [
    (200, PAGE, {}),
    (302, b"", {"Location": "https://example.com/maintenance"}),
    (404, b'{"title": "Not Found"}', {"Server": "nginx"}),
]


class HardOfHearing(Counterpart):
    """A server that hears of ends by ``finish`` alone."""

    def _hear(self, body: dict[str, Any]) -> bool:
        return super()._hear(body | {"held": [one for one in body["held"] if one["state"] != "ended"]})


@pytest.fixture
async def counterpart() -> AsyncIterator[Counterpart]:
    """A server on loopback."""
    server = HardOfHearing()
    await server.start()
    yield server
    await server.stop()


@pytest.mark.parametrize("stranger", STRANGERS, ids=lambda answer: str(answer[0]))
@pytest.mark.parametrize("asked", ["register", "sync", "start", "spec", "logs", "artifacts", "finish"])
async def test_what_a_stranger_answers_is_asked_again(
    asked: str,
    stranger: Answer,
    counterpart: Counterpart,
    runner: Any,
    probe: Probe,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An ingress's 404, a page that says "soon" while the service restarts: nothing is given up for them."""
    monkeypatch.setattr(execution, "PAUSE", 0.01)
    counts = Counter[str]()

    def refuses(_method: str, path: str) -> Answer | None:
        if asked not in path.split("/"):
            return None
        counts[path] += 1
        return stranger if counts[path] <= 2 else None

    counterpart.refuses = refuses
    entry = await counterpart.offer(script="echo out; echo kept > file", artifacts=["file"], on_loss="hold")
    entry.assignment["long"], entry.assignment["spec"] = entry.assignment["spec"], None
    agent = await runner()
    report = await ended(counterpart, entry)
    assert (report["outcome"], report["result"]["artifacts"]) == ("completed", ["file"]), report
    assert (entry.log(), entry.artifacts, entry.starts) == ("out\n", {"file": b"kept\n"}, 1)
    assert min(counts.values()) >= 3
    assert not [name for name in ("report.refused", "logs.refused", "service.failed") if probe.seen(name)]
    assert agent.ready()


@pytest.mark.parametrize("asked", ["spec", "start", "logs", "artifacts", "finish"])
async def test_a_token_that_is_revoked_takes_nothing_from_what_runs(
    asked: str, counterpart: Counterpart, runner: Any, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the runner has registered again its assignments are refused; then they go on, whole."""
    monkeypatch.setattr(execution, "PAUSE", 0.01)
    counterpart.intervals["sync_wait"] = 0.2

    def refuses(_method: str, path: str) -> Answer | None:
        if asked in path.split("/") and counterpart.term == 1:
            counterpart.forget_tokens()
        return None

    counterpart.refuses = refuses
    entry = await counterpart.offer(script="echo out; echo kept > file", artifacts=["file"], on_loss="hold")
    entry.assignment["long"], entry.assignment["spec"] = entry.assignment["spec"], None
    await runner()
    report = await ended(counterpart, entry)
    assert (report["outcome"], report["result"]["artifacts"]) == ("completed", ["file"]), report
    assert (entry.log(), report["logs"]["stdout"]["gap"]) == ("out\n", False)
    assert len(counterpart.registrations) == 2
    assert not [name for name in ("report.refused", "logs.refused") if probe.seen(name)]


async def test_a_runner_at_a_wrong_address_says_what_answers_there(
    counterpart: Counterpart, runner: Any, probe: Probe
) -> None:
    """It waits, as for a server that is away; its log has who answered, and what to look at."""
    counterpart.refuses = lambda _method, _path: (404, PAGE, {"Server": "nginx"})
    start = asyncio.create_task(runner())
    told = await probe.wait_for("server.unreachable")
    counterpart.refuses = lambda _method, _path: None
    await start
    assert str(told["error"]) == (
        f"the Holdfast server at {counterpart.address}/runner/v1/register does not answer: "
        "something else does (404 x, Server nginx); is this the right address?"
    )
