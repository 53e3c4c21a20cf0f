"""The runner program while its server is away, deaf or forgetful: nothing is lost, nothing is doubled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.runners.agent import registrar
from holdfast.runners.agent.connection import Connection
from holdfast.runners.agent.messages import Assignment, Registration
from holdfast.runtime import outage
from holdfast.testing import Probe
from tests.runners.agent.conftest import Gate
from tests.runners.agent.counterpart import REGISTRATION, Answer, Counterpart
from tests.runners.agent.test_agent import ended

# How long a runner may be silent: longer than a full machine takes to end a command and to hear of it.
LOST_AFTER = 4.0


class SlowStore(Counterpart):
    """A server that counts the files that it is sent, and never has taken one in."""

    uploads = 0

    async def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if method == "PUT":
            self.uploads += 1
            await self.change()
            await asyncio.Event().wait()
        return await super()._answer(method, path, headers, body)


async def test_no_answer_that_is_lost_loses_or_doubles_work(
    counterpart: Counterpart, runner: Any, tmp_path: Path
) -> None:
    """Every third answer of each kind is lost on its way; every command runs once, and its end is told."""
    counts: dict[str, int] = {}

    def loses(_method: str, path: str) -> bool:
        kind = path.rsplit("/", 1)[-1]
        counts[kind] = counts.get(kind, 0) + 1
        return counts[kind] % 3 == 1 and kind != "register"

    counterpart.loses = loses
    entries = [
        await counterpart.offer(script=f"echo ran >> {tmp_path}/{number}; echo line {number}")
        for number in range(6)
    ]
    await runner(slots=3)
    for number, entry in enumerate(entries):
        await ended(counterpart, entry, 30)
        assert (tmp_path / str(number)).read_text() == "ran\n"
        assert entry.log() == f"line {number}\n"


async def test_work_survives_a_restart_of_the_server(
    counterpart: Counterpart, runner: Any, probe: Probe, gate: Gate
) -> None:
    """While the server is away the command goes on; its output and its end arrive when it is back."""
    await runner()
    entry = await counterpart.offer(script=f"echo before; {gate}; echo after")
    await counterpart.until(lambda: "before" in entry.log())
    await counterpart.stop()
    await probe.wait_for("server.unreachable")
    gate.open()
    await probe.wait_for("logs.delayed")
    await counterpart.start()
    report = await ended(counterpart, entry, 20)
    assert report["outcome"] == "completed"
    assert entry.log() == "before\nafter\n"
    assert len(counterpart.registrations) == 1


async def test_a_runner_that_cannot_register_counts_how_often(
    counterpart: Counterpart, runner: Any, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log says how long that has gone on, and does not say so each time."""
    monkeypatch.setattr(registrar, "FIRST_PAUSE", 0.01)
    await counterpart.stop()
    start = asyncio.create_task(runner())
    await probe.wait_for("server.unreachable")
    monkeypatch.setattr(outage, "INTERVAL", 0.0)
    await probe.wait_for("server.unreachable", times=3)
    await counterpart.start()
    await start
    counts = [told["failures"] for told in probe.seen("server.unreachable")]
    assert counts == sorted(set(counts))
    assert (counts[0], counts[-1] > counts[0]) == (1, True)


async def test_output_beyond_the_buffer_is_a_marked_gap(
    counterpart: Counterpart, runner: Any, probe: Probe, gate: Gate
) -> None:
    """A flood while the server is away keeps its newest part; what is missing is told, never hidden."""
    await runner(log_buffer=100_000)
    entry = await counterpart.offer(script=f"echo begin; {gate}; seq -w 1 100000; echo end")
    await counterpart.until(lambda: "begin" in entry.log())
    await counterpart.stop()
    gate.open()
    await probe.wait_for("program.ended")
    await counterpart.start()
    await ended(counterpart, entry, 20)
    [(stream, offset, length)] = entry.gaps
    whole = b"begin\n" + b"".join(b"%06d\n" % number for number in range(1, 100_001)) + b"end\n"
    assert stream == "stdout"
    assert entry.logs["stdout"] == whole[:offset] + whole[offset + length :]
    # One stream alone may fill the buffer, but for the piece that makes room.
    assert len(whole) - 110_000 < length < len(whole) - 70_000


async def test_output_that_arrived_unheard_and_was_dropped_makes_no_log_a_damaged_one(
    counterpart: Counterpart, runner: Any, probe: Probe, gate: Gate
) -> None:
    """The runner has no sum of it, and says that its sum does not tell the whole."""
    lost = 0

    def loses(_method: str, path: str) -> bool:
        nonlocal lost
        lost += path.endswith("/logs/stdout")
        return path.endswith("/logs/stdout")

    counterpart.loses = loses
    await runner(log_buffer=100_000)
    entry = await counterpart.offer(script=f"echo begin; {gate}; seq -w 1 100000")
    await counterpart.until(lambda: "begin" in entry.log())
    gate.open()
    await probe.wait_for("program.ended")
    # The first one may have been read before the flood.
    so_far = lost
    await counterpart.until(lambda: lost >= so_far + 2)
    counterpart.loses = lambda _method, _path: False
    report = await ended(counterpart, entry, 20)
    assert entry.log().startswith("begin\n")
    assert (len(entry.gaps), report["logs"]["stdout"]["gap"]) == (1, True)


async def test_progress_that_nobody_heard_is_told_again(
    counterpart: Counterpart, runner: Any, gate: Gate
) -> None:
    """A sync takes it along; the next one does so too where that came to nothing."""
    agent = await runner()
    entry = await counterpart.offer(script=f"{gate}")
    await counterpart.until(lambda: entry.state == "running")
    [execution] = agent.roster.executions.values()
    refused = 0

    def refuses(_method: str, path: str) -> Answer | None:
        nonlocal refused
        refused += path.endswith("/sync")
        return 502, {"detail": "away"}, {}

    counterpart.refuses = refuses
    execution.progress(0.5, "half way")
    # Two that do not know of it yet may be under way.
    await counterpart.until(lambda: refused >= 3)
    counterpart.refuses = lambda _method, _path: None
    await counterpart.until(lambda: entry.notes)
    assert entry.notes == [(0.5, "half way")]
    gate.open()
    await ended(counterpart, entry)


async def test_slow_uploads_do_not_keep_syncs_from_the_server() -> None:
    """However many wait for an answer: else the server would take a runner for lost that is there."""
    server = SlowStore()
    await server.start()
    async with Connection(server.address, "0.1.0") as connection:
        said = Registration(
            name="build-7", host="build-7.lan", version="0.1.0", labels=(), kinds=(), queues=(), slots=1
        )
        await connection.register(said, REGISTRATION)
        assignment = msgspec.convert((await server.offer()).assignment, Assignment)
        uploads = [asyncio.create_task(connection.keep(assignment, f"{n}", b"x")) for n in range(80)]
        await server.until(lambda: server.uploads >= 64)
        await connection.sync(1, [], free=0, wait=0.0, draining=False)
        for upload in uploads:
            upload.cancel()
        await asyncio.gather(*uploads, return_exceptions=True)
    await server.stop()


@pytest.mark.parametrize(("on_loss", "outcome"), [("retry", "lost"), ("hold", "completed")])
async def test_a_runner_cut_off_for_too_long_stops_what_others_may_have(
    on_loss: str, outcome: str, counterpart: Counterpart, runner: Any, probe: Probe, gate: Gate
) -> None:
    """Past the limit its retried jobs may run elsewhere, so they end here; others go on."""
    counterpart.intervals |= {"lost_after": LOST_AFTER, "sync_wait": 0.3}
    agent = await runner()
    entry = await counterpart.offer(script=f"echo up; {gate}", on_loss=on_loss)
    await counterpart.until(lambda: "up" in entry.log())
    await counterpart.freeze()
    if outcome == "lost":
        await probe.wait_for("assignment.ended", lambda fields: fields["outcome"] == "lost")
        return
    await eventually_cut(agent)
    await counterpart.thaw()
    gate.open()
    assert (await ended(counterpart, entry, 30))["outcome"] == "completed"


async def test_work_that_was_done_before_the_runner_was_cut_off_for_too_long_is_told(
    counterpart: Counterpart, runner: Any, probe: Probe, gate: Gate
) -> None:
    """Nothing is left to stop: the end goes without the rest of its log, and the server decides on it."""
    counterpart.intervals |= {"lost_after": LOST_AFTER, "sync_wait": 0.3}
    await runner()
    entry = await counterpart.offer(script=f"echo up; {gate}; echo down")
    await counterpart.until(lambda: "up" in entry.log())
    await counterpart.freeze()
    gate.open()
    await probe.wait_for("assignment.ended", lambda fields: fields["outcome"] == "completed")
    await counterpart.thaw()
    report = await ended(counterpart, entry, 30)
    assert (report["outcome"], report["logs"]["stdout"]["gap"]) == ("completed", True)


@pytest.mark.parametrize("on_loss", ["hold", "fail"])
async def test_what_must_not_run_twice_begins_when_the_server_knows_of_it(
    on_loss: str, counterpart: Counterpart, runner: Any, tmp_path: Path
) -> None:
    """Else it would be given to another runner, had this one died with its program just begun."""
    asked, down, begun = asyncio.Event(), True, tmp_path / "begun"

    def refuses(_method: str, path: str) -> Answer | None:
        if not path.endswith("/start") or not down:
            return None
        if begun.exists():
            return 409, {"type": "urn:holdfast:problem:assignment-stale", "detail": "too late"}, {}
        asked.set()
        return 503, {"detail": "not now"}, {}

    counterpart.refuses = refuses
    await runner()
    entry = await counterpart.offer(script=f"touch {begun}", on_loss=on_loss)
    other = await counterpart.offer(script="true")
    await asyncio.wait_for(asked.wait(), 20)
    assert (await ended(counterpart, other))["outcome"] == "completed"
    assert (other.starts, entry.starts, begun.exists()) == (0, 0, False)
    down = False
    assert (await ended(counterpart, entry))["outcome"] == "completed"
    assert (entry.starts, begun.exists()) == (1, True)


async def test_what_was_taken_away_before_it_began_never_begins(
    counterpart: Counterpart, runner: Any, probe: Probe, tmp_path: Path
) -> None:
    """The server's refusal of its start is the last word."""
    stale = {"type": "urn:holdfast:problem:assignment-stale", "detail": "it is not yours"}
    counterpart.refuses = lambda _method, path: (409, stale, {}) if path.endswith("/start") else None
    await runner()
    await counterpart.offer(script=f"touch {tmp_path}/begun", on_loss="hold")
    await probe.wait_for("assignment.ended", lambda fields: fields["outcome"] == "lost")
    assert not (tmp_path / "begun").exists()


async def eventually_cut(agent: Any) -> None:
    """Wait until the server has been silent for longer than it lets a runner live."""
    async with asyncio.timeout(20):
        while agent.silence < LOST_AFTER + 0.5:  # noqa: ASYNC110 - a clock has no event to wait for
            await asyncio.sleep(0.05)


async def test_a_report_that_nobody_heard_is_told_after_a_restart(
    counterpart: Counterpart, runner: Any, probe: Probe, tmp_path: Path, gate: Gate
) -> None:
    """A runner that has to leave while the server is away keeps the end of its command for the next start."""
    agent = await runner()
    entry = await counterpart.offer(script=f"echo up; {gate}")
    await counterpart.until(lambda: "up" in entry.log())
    # Logs come first: nothing is reported while the runner does not know that they have arrived.
    await probe.wait_for("logs.shipped")
    await counterpart.stop()
    gate.open()
    await probe.wait_for("report.postponed")
    await agent.stop(0.0)
    assert len(list((tmp_path / "runner" / "reports").iterdir())) == 1
    await counterpart.start()
    await runner()
    assert (await ended(counterpart, entry))["outcome"] == "completed"
    await counterpart.until(lambda: not list((tmp_path / "runner" / "reports").iterdir()))


async def test_an_end_whose_log_has_not_arrived_is_told_after_a_restart(
    counterpart: Counterpart, runner: Any, probe: Probe, tmp_path: Path, gate: Gate
) -> None:
    """The work is done, so it must not be done again: what is missing of its log is given up."""
    agent = await runner()
    entry = await counterpart.offer(script=f"echo up; {gate}; echo down")
    await counterpart.until(lambda: "up" in entry.log())
    await counterpart.stop()
    gate.open()
    await probe.wait_for("program.ended")
    await probe.wait_for("logs.delayed")
    await agent.stop(0.0)
    assert len(list((tmp_path / "runner" / "reports").iterdir())) == 1
    await counterpart.start()
    await runner()
    report = await ended(counterpart, entry)
    assert (report["outcome"], report["logs"]["stdout"]["gap"]) == ("completed", True)
    await counterpart.until(lambda: not list((tmp_path / "runner" / "reports").iterdir()))


async def test_an_end_that_a_sync_cannot_carry_stops_nothing(
    counterpart: Counterpart, runner: Any, probe: Probe, tmp_path: Path, gate: Gate
) -> None:
    """Ends from before, too long together for somebody on the way, are told one by one; what runs goes on."""
    former = [await counterpart.offer(script="never") for _ in range(3)]
    (tmp_path / "runner" / "reports").mkdir(parents=True)
    for job, entry in enumerate(former, 1):
        entry.state = "running"
        report = msgspec.json.encode({"outcome": "completed", "result": "x" * 1000})
        (tmp_path / "runner" / "reports" / f"{job}-1.json").write_bytes(report)
    counterpart.body_limit = 2000
    agent = await runner()
    entry = await counterpart.offer(script=f"{gate}")
    for one in former:
        assert len((await ended(counterpart, one))["result"]) == 1000
    gate.open()
    assert (await ended(counterpart, entry))["outcome"] == "completed"
    assert len(probe.seen("sync.shortened")) == 1
    assert agent.ready()


@pytest.mark.parametrize("status", [400, 413])
async def test_an_end_that_is_refused_for_good_is_told_as_that(
    status: int, counterpart: Counterpart, runner: Any
) -> None:
    """Untold, its job would be taken for lost, and run again and again."""
    counterpart.body_limit, counterpart.body_status = 2000, status
    agent = await runner()
    entry = await counterpart.offer(script="yes | head -c 3000 >&2; exit 3")
    report = await ended(counterpart, entry)
    assert (report["outcome"], report["retry"]) == ("failed", False)
    assert report["reason"] == "its end (failed) was refused: the body is too large"
    assert agent.ready()


async def test_a_token_that_was_revoked_is_replaced(
    counterpart: Counterpart, runner: Any, gate: Gate
) -> None:
    """A runner whose token is gone registers anew with the one it was given, and its work goes on."""
    await runner()
    entry = await counterpart.offer(script=f"echo up; {gate}; echo done")
    await counterpart.until(lambda: "up" in entry.log())
    counterpart.forget_tokens()
    await counterpart.change()
    await counterpart.until(lambda: len(counterpart.registrations) == 2)
    gate.open()
    assert (await ended(counterpart, entry))["outcome"] == "completed"
    assert len(counterpart.registrations) == 2


async def test_artifacts_survive_a_restart_of_the_server(
    counterpart: Counterpart, runner: Any, probe: Probe, gate: Gate
) -> None:
    """A file that is ready while the server is away is sent when it is back."""
    await runner()
    entry = await counterpart.offer(script=f"echo up; {gate}; echo kept > file", artifacts=["file"])
    await counterpart.until(lambda: "up" in entry.log())
    await counterpart.stop()
    gate.open()
    await probe.wait_for("program.ended")
    await counterpart.start()
    report = await ended(counterpart, entry)
    assert entry.artifacts == {"file": b"kept\n"}
    assert report["result"]["artifacts"] == ["file"]
