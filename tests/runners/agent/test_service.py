"""The runner program with the real service on a real PostgreSQL: what people see of it."""

import asyncio
import gzip
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.client.operator import Operator
from holdfast.model.token import Role
from holdfast.runners.agent.agent import Agent
from holdfast.runners.agent.config import AgentConfig
from holdfast.runners.agent.stages import Cause
from holdfast.runtime.events import Events
from holdfast.testing import Probe, ThrowawayDatabase
from tests.runners.agent import trade
from tests.runners.agent.strait import Strait
from tests.web.conftest import Service, serve, service  # noqa: F401 - fixtures

SOON = holdfast.Constant(timedelta(seconds=0.1))
KINDS = tuple(sorted(trade.app.handlers))
BACKOFFS = {kind: handler.policy.retry for kind, handler in trade.app.handlers.items()}
# How often a bad network breaks every connection.
BREAKS = 60
LOG = """
select array_agg(array[packed::text::bytea, data] order by byte_offset)
from holdfast.log_chunks where job_id = $1 and stream = $2
"""


@pytest.fixture
async def runner(service: Service, probe: Probe, tmp_path: Path) -> AsyncIterator[Any]:  # noqa: F811
    """Starts runners of the service: ``await runner(slots=2, name="two")``."""
    token, _ = await service.token(Role.REGISTRAR)
    async with AsyncExitStack() as stack:

        async def start(**options: Any) -> Agent:
            facts: dict[str, Any] = {"name": "build-7", "host": "here", "version": "0.1.0", "token": token}
            facts |= {"server": service.url, "environment": dict(os.environ)} | options
            agent = Agent(AgentConfig(**({"folder": tmp_path / facts["name"]} | facts)), Events(probe))
            await agent.start()
            stack.push_async_callback(agent.stop, 0.0)
            return agent

        yield start


@pytest.fixture
async def strait(service: Service) -> AsyncIterator[Strait]:  # noqa: F811
    """A network between runners and the service that a test can disturb."""
    async with Strait(int(service.url.rpartition(":")[2])) as between:
        yield between


@pytest.fixture
def command(client: holdfast.Client) -> Any:
    """Enqueues a command: ``await command("echo hi", timeout=5)``; answers the job's id."""

    async def enqueue(script: str, *, timeout: float = 60, max_attempts: int = 1, **args: Any) -> int:
        request = holdfast.command(script=script, **args)
        return (await client.enqueue(request, timeout=timeout, max_attempts=max_attempts, retry=SOON)).id

    return enqueue


@pytest.fixture
def log(db: ThrowawayDatabase) -> Any:
    """Reads what a job has logged by now: ``await log(job_id, "stderr")``."""

    async def read(job_id: int, stream: str = "stdout") -> str:
        chunks = await db.value(LOG, job_id, stream) or []
        return b"".join(
            gzip.decompress(data) if packed == b"true" else data for packed, data in chunks
        ).decode()

    return read


async def test_a_command_goes_all_the_way(
    runner: Any, command: Any, client: holdfast.Client, log: Any
) -> None:
    """Enqueued in the database, run by a runner that never sees it, result and log back in the database."""
    await runner()
    job_id = await command("echo out; echo err >&2")
    result = await client.wait(job_id, timeout=20)
    assert result["exit_code"] == 0
    assert (await log(job_id), await log(job_id, "stderr")) == ("out\n", "err\n")


async def test_of_two_runners_with_one_name_the_older_one_leaves(
    runner: Any, command: Any, probe: Probe, db: ThrowawayDatabase, work: Any, tmp_path: Path
) -> None:
    """It stops its work and says so, and does not take the name back, though it could register."""
    # A leader: what a runner has begun and lost rests a moment before it is available again.
    await work(holdfast.App(), queues=("elsewhere",))
    older = await runner(name="twin")
    job_id = await command("sleep 100", max_attempts=2)
    await probe.wait_for("assignment.begun")
    await runner(name="twin", folder=tmp_path / "elsewhere")
    with pytest.raises(holdfast.errors.ServerRefused, match="registered again"):
        await asyncio.wait_for(older.ended(), 20)
    await probe.wait_for("assignment.ended", lambda fields: fields["outcome"] == "lost")
    await probe.wait_for("assignment.begun", lambda fields: fields["fence"].attempt == 2)
    assert await db.value("select term from holdfast.workers where name = 'twin'") == 2
    assert await db.value("select attempt from holdfast.live_jobs where job_id = $1", job_id) == 2


async def test_a_runner_is_drained_for_an_update_and_resumed(
    runner: Any, command: Any, client: holdfast.Client, probe: Probe, db: ThrowawayDatabase, tmp_path: Path
) -> None:
    """The service asks it to drain: it ends what it runs and begins nothing, as a newer release too."""
    workers = Operator(db.database, "ada").workers
    older = await runner(version="1.0")
    runs = await command(f"until test -e {tmp_path}/go; do sleep 0.05; done")
    await probe.wait_for("assignment.begun")
    [before] = await workers.find()
    await workers.drain(before.id, "update")
    await probe.wait_for("runner.drained")
    waits = await command("true")
    (tmp_path / "go").touch()
    assert (await client.wait(runs, timeout=20))["exit_code"] == 0
    assert await older.stop()
    probe.forget()
    await runner(version="2.0")
    await probe.wait_for("runner.drained")
    [after] = await workers.find()
    assert (after.id, before.version, after.version) == (before.id, "1.0", "2.0")
    assert (await client.job(waits)).state == "available"
    await workers.resume(after.id)
    await probe.wait_for("runner.undrained")
    assert (await client.wait(waits, timeout=20))["exit_code"] == 0


async def test_twenty_commands_on_two_runners_all_end(
    runner: Any, command: Any, client: holdfast.Client
) -> None:
    """Each runs once, wherever."""
    await runner(name="one", slots=2)
    await runner(name="two", slots=2)
    jobs = [await command(f"exit {number % 2}") for number in range(20)]
    ends = await asyncio.gather(*(client.wait(job, timeout=60) for job in jobs), return_exceptions=True)
    assert [isinstance(end, holdfast.JobFailed) for end in ends] == [False, True] * 10
    assert "exit code 1" in str(ends[1])


async def test_a_cancel_reaches_a_running_command_within_two_seconds(
    runner: Any, command: Any, client: holdfast.Client, log: Any, eventually: Any
) -> None:
    """The program is interrupted, and the record says that it was cancelled."""
    await runner()
    took: list[float] = []
    # A full machine may hold up one or two of them.
    while len(took) < 3 and min(took, default=2.0) >= 2:
        job_id = await command("trap 'echo bye; exit 1' INT; echo up; while :; do sleep 0.05; done")
        await eventually(lambda job_id=job_id: log(job_id))
        asked = time.monotonic()
        await client.cancel(job_id)
        with pytest.raises(holdfast.JobCancelled):
            await client.wait(job_id, timeout=20)
        took.append(time.monotonic() - asked)
        assert (await log(job_id)).endswith("bye\n")
    assert min(took) < 2


async def test_a_command_that_fails_is_tried_again(
    runner: Any, command: Any, client: holdfast.Client, work: Any
) -> None:
    """The job's own policy decides, as for every other kind."""
    # A leader, which makes available what is due again.
    await work(holdfast.App(), queues=("elsewhere",))
    await runner()
    job_id = await command('test "$RUNNER_ATTEMPT" = 2', max_attempts=2)
    result = await client.wait(job_id, timeout=40)
    assert result["exit_code"] == 0


async def test_artifacts_reach_the_database(
    runner: Any, command: Any, client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """A file in a folder keeps its whole name."""
    await runner()
    job_id = await command("mkdir out; echo one > out/one.txt", artifacts=["out/*"])
    assert (await client.wait(job_id, timeout=20))["artifacts"] == ["out/one.txt"]
    assert await db.value("select data from holdfast.artifacts where job_id = $1", job_id) == b"one\n"


async def test_work_survives_the_end_of_the_service(
    runner: Any,
    strait: Strait,
    command: Any,
    client: holdfast.Client,
    service: Service,  # noqa: F811
    probe: Probe,
    log: Any,
    eventually: Any,
    tmp_path: Path,
) -> None:
    """The service goes away and comes back: one attempt, every byte of the log, one end."""
    await runner(server=strait.address)
    wait = f"until test -e {tmp_path}/go; do sleep 0.05; done"
    job_id = await command(f"echo before; {wait}; seq 1 5000; echo after")
    await eventually(lambda: log(job_id))
    await service.server.stop()
    await probe.wait_for("server.unreachable")
    (tmp_path / "go").touch()
    await probe.wait_for("logs.delayed")
    await service.server.start()
    strait.target = int(service.url.rpartition(":")[2])
    await client.wait(job_id, timeout=30)
    assert (await client.job(job_id)).attempt == 1
    assert await log(job_id) == "before\n" + "".join(f"{number}\n" for number in range(1, 5001)) + "after\n"


async def test_a_bad_network_loses_and_doubles_nothing(
    runner: Any, strait: Strait, command: Any, client: holdfast.Client, log: Any, tmp_path: Path
) -> None:
    """Connections break again and again at any moment: every command runs once, every byte arrives once."""
    await runner(server=strait.address, slots=4)
    strait.delay = 0.005
    jobs = [
        await command(f"echo x >> {tmp_path}/{number}; seq 1 2000; sleep 0.5; seq 1 2000")
        for number in range(12)
    ]
    waiting = asyncio.gather(*(client.wait(job, timeout=60) for job in jobs))
    # Then it gets better, for on a slow machine no request may come through between two breaks.
    for _ in range(BREAKS):
        await asyncio.wait({waiting}, timeout=0.15)
        strait.interrupt()
    await waiting
    lines = "".join(f"{number}\n" for number in range(1, 2001)) * 2
    for number, job_id in enumerate(jobs):
        assert (tmp_path / str(number)).read_text() == "x\n"
        assert await log(job_id) == lines


async def test_a_cut_within_the_limit_costs_nothing(
    runner: Any,
    strait: Strait,
    command: Any,
    client: holdfast.Client,
    probe: Probe,
    log: Any,
    eventually: Any,
    tmp_path: Path,
) -> None:
    """A runner that hears nothing for a while goes on, and reconciles when the network is mended."""
    await runner(server=strait.address)
    wait = f"until test -e {tmp_path}/go; do sleep 0.05; done"
    job_id = await command(f"echo before; {wait}; echo after")
    await eventually(lambda: log(job_id))
    strait.cut()
    (tmp_path / "go").touch()
    await probe.wait_for("program.ended")
    strait.mend()
    await client.wait(job_id, timeout=30)
    assert (await client.job(job_id)).attempt == 1
    assert await log(job_id) == "before\nafter\n"


@pytest.mark.parametrize("restarts", [False, True])
async def test_ends_that_no_body_holds_together_are_all_told(
    restarts: bool,
    runner: Any,
    strait: Strait,
    client: holdfast.Client,
    service: Service,  # noqa: F811
    probe: Probe,
    eventually: Any,
    tmp_path: Path,
) -> None:
    """Five results of 1 MB wait while the service cannot be heard: each arrives, also after a restart."""
    facts = {"app": "tests.runners.agent.trade:silent", "kinds": ("fill",), "server": strait.address}
    agent = await runner(slots=8, **facts)
    size = 1_000_000
    jobs = [await ask(client, trade.fill.job(size, str(tmp_path / "go"))) for _ in range(5)]
    await probe.wait_for("assignment.begun", times=5)
    await service.server.stop()
    (tmp_path / "go").touch()

    async def wait_in_vain() -> bool:
        return {told["fence"].job_id for told in probe.seen("report.postponed")} == set(jobs)

    await eventually(wait_in_vain)
    if restarts:
        await agent.stop(0.0)
    await service.server.start()
    strait.target = int(service.url.rpartition(":")[2])
    agent = await runner(**facts) if restarts else agent
    for job in jobs:
        assert len(await client.wait(job, timeout=30)) == size
        assert (await client.job(job)).attempt == 1

    async def is_ready() -> bool:
        return bool(agent.ready())

    await eventually(is_ready)


async def ask(client: holdfast.Client, request: JobRequest) -> int:
    """Enqueue a job of the application for runners."""
    return (await client.enqueue(request, labels=[])).id


async def test_kinds_of_an_application_run_on_a_runner(
    runner: Any, client: holdfast.Client, log: Any
) -> None:
    """Async and sync handlers, with middleware, progress, output and results as on a worker."""
    await runner(app="tests.runners.agent.trade:app", kinds=KINDS)
    added = await ask(client, trade.add.job(1, 2))
    shouted = await ask(client, trade.shout.job("hi"))
    assert await client.wait(added, timeout=20) == 3
    assert await client.wait(shouted, timeout=20) == "HI"
    assert await log(shouted) == "before shout\nto stdout\n"
    assert await log(shouted, "stderr") == "INFO holdfast.job: to the log\n"


async def test_a_handler_reads_what_its_application_was_given(runner: Any, client: holdfast.Client) -> None:
    """An application finds its settings in the environment; those of the runner are none of its business."""
    given = {"SHOP_API_KEY": "k-1", "TMPDIR": "/nowhere", "HOLDFAST_TOKEN": "t-1", "HOLDFAST_SERVER": "s-1"}
    await runner(app="tests.runners.agent.trade:app", kinds=KINDS, environment=dict(os.environ) | given)
    job_id = await ask(client, trade.look_around.job())
    seen = await client.wait(job_id, timeout=20)
    assert seen["SHOP_API_KEY"] == "k-1"
    assert seen["RUNNER_JOB"] == str(job_id)
    assert seen["TMPDIR"] != "/nowhere"
    assert not [name for name in seen if name.startswith("HOLDFAST_")]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("stumble", "ValueError: a stone"),
        ("give_up", "Poison: never"),
        ("reach_out", "a checkpoint needs the database, which a runner does not see"),
    ],
)
async def test_what_a_handler_raises_is_told(
    kind: str, reason: str, runner: Any, client: holdfast.Client
) -> None:
    """The error of the handler is the error of the job, with its traceback."""
    await runner(app="tests.runners.agent.trade:app", kinds=KINDS)
    job_id = await ask(client, trade.app.request(kind, {}))
    with pytest.raises(holdfast.JobFailed, match=reason):
        await client.wait(job_id, timeout=20)
    assert "Traceback" in ((await client.job(job_id)).error or "")


async def test_a_handler_that_raises_is_tried_again(runner: Any, client: holdfast.Client) -> None:
    """As often as its kind says, after the rest that its kind says: the default would take half a minute."""
    await runner(app="tests.runners.agent.trade:app", kinds=KINDS, backoffs=BACKOFFS)
    job_id = await ask(client, trade.persist.job())
    assert await client.wait(job_id, timeout=20) == 3
    attempts = (await client.job(job_id)).attempts
    assert [attempt.outcome for attempt in attempts] == ["retried", "retried", "completed"]
    assert [attempt.reason for attempt in attempts[:2]] == ["ValueError: not yet"] * 2


@pytest.mark.parametrize("way", ["raise", "die", "wait"])
async def test_a_failure_rests_as_its_kind_says(
    way: str, runner: Any, client: holdfast.Client, db: ThrowawayDatabase, eventually: Any
) -> None:
    """Whatever it was: an error, a death of the handler's process, a timeout."""
    await runner(app="tests.runners.agent.trade:app", kinds=KINDS, backoffs=BACKOFFS)
    timeout = 3 if way == "wait" else 60
    job_id = (await client.enqueue(trade.falter.job(way), labels=[], timeout=timeout)).id
    await eventually(
        lambda: db.value("select outcome = 'retried' from holdfast.attempts where job_id = $1", job_id)
    )
    rest = (
        "select round(extract(epoch from run_at - holdfast.now())) from holdfast.live_jobs where job_id = $1"
    )
    assert await db.value(rest, job_id) == pytest.approx(2 * 86400, abs=60)


async def test_a_job_that_has_a_policy_of_its_own_rests_by_that(runner: Any, client: holdfast.Client) -> None:
    """What was given when it was enqueued comes before what its kind says."""
    await runner(app="tests.runners.agent.trade:app", kinds=KINDS, backoffs=BACKOFFS)
    at_once = holdfast.Constant(timedelta(0))
    job_id = (await client.enqueue(trade.falter.job("raise"), labels=[], retry=at_once)).id
    assert await client.wait(job_id, timeout=20) == "done"


async def test_a_handler_may_cancel_its_job(runner: Any, client: holdfast.Client) -> None:
    """Nobody else has asked for it, and it is not tried again."""
    await runner(app="tests.runners.agent.trade:app", kinds=KINDS)
    job_id = await ask(client, trade.decline.job())
    with pytest.raises(holdfast.JobCancelled, match="nothing to do"):
        await client.wait(job_id, timeout=20)
    assert [attempt.outcome for attempt in (await client.job(job_id)).attempts] == ["cancelled"]


async def test_a_handler_may_snooze(
    runner: Any, client: holdfast.Client, db: ThrowawayDatabase, eventually: Any
) -> None:
    """What a handler returns means the same on a runner as on a worker; a rest costs no failure."""
    await runner(app="tests.runners.agent.trade:app", kinds=KINDS)
    job_id = await ask(client, trade.snooze.job())
    await eventually(
        lambda: db.value("select outcome = 'snoozed' from holdfast.attempts where job_id = $1", job_id)
    )
    record = await client.job(job_id)
    assert (record.state, record.failures, record.attempts[0].reason) == ("scheduled", 0, "later")


async def test_a_handler_may_rest_as_long_as_on_a_worker(
    runner: Any, client: holdfast.Client, db: ThrowawayDatabase, eventually: Any
) -> None:
    """Longer than a year: it ran again and again, and then it was lost."""
    agent = await runner(app="tests.runners.agent.trade:app", kinds=KINDS)
    job_id = await ask(client, trade.hibernate.job())
    await eventually(lambda: db.value("select count(*) = 1 from holdfast.attempts where job_id = $1", job_id))
    record = await client.job(job_id)
    assert (record.state, record.attempt, record.failures) == ("scheduled", 1, 0)
    rest = "select run_at - holdfast.now() > interval '399 days' from holdfast.live_jobs where job_id = $1"
    assert await db.value(rest, job_id)
    assert agent.ready()


@pytest.mark.parametrize(("kind", "word"), [("linger", "lingering"), ("brood", "brooding")])
async def test_a_cancel_stops_a_handler(
    kind: str,
    word: str,
    runner: Any,
    client: holdfast.Client,
    log: Any,
    eventually: Any,
) -> None:
    """An async handler is cancelled and tidies up, a sync one is interrupted on its main thread."""
    await runner(app="tests.runners.agent.trade:app", kinds=KINDS)
    job_id = await ask(client, trade.app.request(kind, {}))

    async def has_begun() -> bool:
        return word in await log(job_id)

    await eventually(has_begun)
    await client.cancel(job_id)
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(job_id, timeout=8)
    assert kind != "linger" or (await log(job_id)).endswith("tidied\n")


@pytest.mark.parametrize("way", ["cancel", "timeout", "stop"])
@pytest.mark.parametrize(("kind", "state"), [("conclude", "completed"), ("despair", "failed")])
async def test_a_handler_that_is_stopped_may_say_itself_what_it_came_to(
    kind: str, state: str, way: str, runner: Any, client: holdfast.Client, log: Any, eventually: Any
) -> None:
    """What was done is recorded and not done again, as on a worker; so is that it can never be done."""
    agent: Agent = await runner(app="tests.runners.agent.trade:app", kinds=KINDS)
    job_id = await ask(client, trade.app.request(kind, {}))

    async def has_begun() -> bool:
        return "waiting" in await log(job_id)

    await eventually(has_begun)
    match way:
        case "cancel":
            await client.cancel(job_id)
        case "stop":
            await agent.stop(0.0)
        case _:
            assert agent.roster is not None
            agent.roster.interrupt(Cause.TIMEOUT)
    with suppress(holdfast.JobFailed):
        assert await client.wait(job_id, timeout=20) == "enough"
    record = await client.job(job_id)
    assert (record.state, record.attempt) == (state, 1)


async def test_the_program_runs_from_the_command_line(
    service: Service,  # noqa: F811
    command: Any,
    client: holdfast.Client,
    tmp_path: Path,
) -> None:
    """`holdfast runner --once` registers, runs one command and leaves with 0; again it needs no token."""
    token, _ = await service.token(Role.REGISTRAR)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    argv = [sys.executable, "-m", "holdfast.cli.main", "runner", "--server", service.url, "--once"]
    argv += ["--name", "cli", "--label", "gpu", "--log-format", "json"]
    for attempt in range(2):
        job_id = await command("echo hi")
        extra = {"HOLDFAST_TOKEN": token} if attempt == 0 else {}
        process = await asyncio.create_subprocess_exec(
            *argv, cwd=tmp_path, env=environment | extra, stderr=asyncio.subprocess.PIPE
        )
        assert (await client.wait(job_id, timeout=30))["exit_code"] == 0
        _, errors = await asyncio.wait_for(process.communicate(), 20)
        assert process.returncode == 0, errors.decode()
        assert '"event":"runner.registered"' in errors.decode()
        assert token not in errors.decode()
