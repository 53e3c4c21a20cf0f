"""`holdfast worker` as a real process: starts, stops, drains, supervises."""

import asyncio
import os
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.app.handler import JobRequest, Policy
from holdfast.cli.stopping import SIGNALS, StopSignals
from holdfast.runtime.events import Events
from holdfast.store import workers
from holdfast.store.sqlfile import rendered
from holdfast.testing import ThrowawayDatabase
from tests.cli.conftest import free_port

WORKER = ("worker", "--app", "shop:app", "--slots", "2", "--ttl", "2s")


def request(kind: str, args: str = "{}") -> JobRequest:
    """A request for a kind of shop.py, which lives in another process."""
    return JobRequest(kind, args, Policy())


def page(port: int, path: str) -> tuple[int, str]:
    """Fetch a page of a worker's metrics server."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.fixture
async def running_nap(client: holdfast.Client, db: ThrowawayDatabase, folder: Path, eventually: Any) -> Any:
    """Enqueues a nap; wait for it to run with the function it gives."""

    async def begin(kind: str = "nap", args: str = '{"seconds": 60}') -> int:
        handle = await client.enqueue(request(kind, args))
        state = "select count(*) from holdfast.live_jobs where job_id = $1 and state = 'running'"
        await eventually(lambda: db.value(state, handle.id))
        # It is running once it is claimed: a worker that is drained before it has the answer gives it back.
        await eventually(lambda: asyncio.to_thread((folder / "begun").exists))
        return handle.id

    return begin


async def test_a_worker_runs_jobs_and_stops_with_0(
    start_holdfast: Any, here: dict[str, str], client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """An application of the working folder is found; an idle worker ends at once and leaves in good order."""
    program = await start_holdfast(*WORKER, **here)
    handle = await client.enqueue(request("greet", '{"name": "you"}'))
    assert await client.wait(handle.id, timeout=20) == "hello you"
    program.send(signal.SIGTERM)
    assert await program.ended() == 0
    assert await db.value("select state from holdfast.workers") == "offline"


async def test_the_collector_of_cycles_leaves_a_worker_to_its_jobs(
    start_holdfast: Any, here: dict[str, str], client: holdfast.Client
) -> None:
    """What was loaded at the start is not looked at again, and the rest is not after every few jobs."""
    await start_holdfast(*WORKER, **here)
    handle = await client.enqueue(request("sweep"))
    often, frozen = await client.wait(handle.id, timeout=20)
    assert often >= 10_000
    assert frozen >= 10_000


async def test_a_handler_that_will_not_be_cancelled_does_not_keep_the_process(
    start_holdfast: Any, here: dict[str, str], running_nap: Any, db: ThrowawayDatabase
) -> None:
    """The process ends with what swallows its cancellation, and the code says that something was left."""
    program = await start_holdfast(*WORKER, "--grace", "0", **here)
    await running_nap("stubborn", "{}")
    program.send(signal.SIGTERM)
    assert await program.ended(within=20) == 3
    assert program.probe.seen("slots.stuck")
    assert await db.value("select state from holdfast.workers") == "offline"


async def test_a_job_may_finish_within_the_grace(
    start_holdfast: Any, here: dict[str, str], running_nap: Any, db: ThrowawayDatabase
) -> None:
    """A stop waits for what runs, and the code says that all was finished."""
    program = await start_holdfast(*WORKER, **here)
    job_id = await running_nap(args='{"seconds": 1}')
    program.send(signal.SIGINT)
    assert await program.ended() == 0
    outcome = await db.value("select outcome from holdfast.finished_jobs where job_id = $1", job_id)
    assert outcome == "completed"


@pytest.mark.parametrize("kind", ["nap", "hang"])
async def test_what_cannot_finish_is_handed_back_and_the_code_is_3(
    start_holdfast: Any, here: dict[str, str], running_nap: Any, db: ThrowawayDatabase, kind: str
) -> None:
    """At the end of the grace a job goes back unspent, even where its thread never returns."""
    program = await start_holdfast(*WORKER, "--grace", "100ms", **here)
    job_id = await running_nap(kind, '{"seconds": 60}' if kind == "nap" else "{}")
    program.send(signal.SIGTERM)
    assert await program.ended(10) == 3
    row = await db.fetch("select state, failures from holdfast.live_jobs where job_id = $1", job_id)
    assert row == [("available", 0)]


async def test_a_second_signal_ends_the_grace(
    start_holdfast: Any, here: dict[str, str], running_nap: Any, db: ThrowawayDatabase
) -> None:
    """Whoever is in a hurry signals twice; the job is still handed back."""
    program = await start_holdfast(*WORKER, "--grace", "1h", **here)
    job_id = await running_nap()
    program.send(signal.SIGINT)
    await program.probe.wait_for("stop.requested")
    program.send(signal.SIGINT)
    assert await program.ended(10) == 3
    assert await db.value("select state from holdfast.live_jobs where job_id = $1", job_id) == "available"


async def test_the_end_of_its_terminal_stops_a_worker_like_a_first_signal(
    start_holdfast: Any, here: dict[str, str], running_nap: Any, db: ThrowawayDatabase
) -> None:
    """What runs goes back unspent, however often it is told: the shell and the system both do."""
    program = await start_holdfast(*WORKER, "--grace", "500ms", **here)
    job_id = await running_nap()
    program.send(signal.SIGHUP)
    await program.probe.wait_for("stop.requested")
    for _ in range(3):
        program.send(signal.SIGHUP)
    assert await program.ended(10) == 3
    row = await db.fetch("select state, failures from holdfast.live_jobs where job_id = $1", job_id)
    assert row == [("available", 0)]


async def test_under_nohup_the_end_of_the_terminal_means_nothing() -> None:
    """Whoever started it so wants it to go on."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        StopSignals(Events(), 30.0, lambda: None).listen()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
        for number in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)


async def test_a_third_signal_leaves_the_rest_to_a_rescue(
    start_holdfast: Any, here: dict[str, str], running_nap: Any, db: ThrowawayDatabase
) -> None:
    """The process is gone at once when even handing back takes too long."""
    program = await start_holdfast(*WORKER, "--grace", "1h", **here)
    await running_nap()
    async with db.database.transaction() as connection:
        # Nothing can be handed back while somebody holds the rows.
        await connection.fetch(rendered("select 1 from holdfast.live_jobs for update", db.schema))
        program.send(signal.SIGTERM)
        await program.probe.wait_for("stop.requested")
        program.send(signal.SIGTERM)
        await program.probe.wait_for("stop.hurried")
        program.send(signal.SIGTERM)
        assert await program.ended(10) == 128 + signal.SIGTERM


async def test_a_drained_worker_finishes_and_ends_by_itself_with_0(
    start_holdfast: Any, here: dict[str, str], running_nap: Any, db: ThrowawayDatabase
) -> None:
    """A drain has no time limit: the job runs to its end although the grace is short."""
    program = await start_holdfast(*WORKER, "--grace", "0", **here)
    job_id = await running_nap(args='{"seconds": 1}')
    worker_id = await db.value("select id from holdfast.workers")
    assert await db.database.run(workers.drain_worker(worker_id))
    assert await program.ended() == 0
    outcome = await db.value("select outcome from holdfast.finished_jobs where job_id = $1", job_id)
    assert outcome == "completed"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("nowhere:app", "no application at 'nowhere:app': there is no module 'nowhere' here or installed"),
        ("shop:nothing", "no application at 'shop:nothing': module 'shop' has no 'nothing'"),
        ("shop:not_an_app", "no application at 'shop:not_an_app': it is a object, not a holdfast.App"),
        ("shop", "app (from --app) is 'shop': give module:name of a holdfast.App"),
    ],
)
async def test_an_application_that_cannot_be_found_is_wrong_use(
    holdfast_command: Any, here: dict[str, str], address: str, told: str
) -> None:
    """The sentence says what was looked for and where it ended."""
    done = await holdfast_command("worker", "--app", address, **here)
    assert (done.code, done.err) == (2, f"holdfast: {told}\n")


async def test_a_fault_of_the_application_keeps_its_traceback(
    holdfast_command: Any, here: dict[str, str], folder: Path
) -> None:
    """Whoever wrote the broken line is shown the line, also for a module that it does not find."""
    (folder / "broken.py").write_text("import holdfast\nimport module_of_nobody\n")
    done = await holdfast_command("worker", "--app", "broken:app", **here)
    assert done.code == 1
    assert "import module_of_nobody" in done.err
    assert "ModuleNotFoundError" in done.err


async def test_an_application_that_is_no_python_is_told_of_by_file_and_line(
    holdfast_command: Any, here: dict[str, str], folder: Path
) -> None:
    """One sentence, without the way in which modules are imported."""
    (folder / "broken.py").write_text("import holdfast\napp = holdfast.App(\n")
    done = await holdfast_command("worker", "--app", "broken:app", **here)
    assert done.code == 2
    assert done.err == (
        f"holdfast: no application at 'broken:app': {folder / 'broken.py'}, line 2: '(' was never closed: "
        "app = holdfast.App(\n"
    )


@pytest.mark.parametrize("processes", ["1", "2"])
async def test_a_worker_needs_a_migrated_schema(
    holdfast_command: Any, here: dict[str, str], processes: str
) -> None:
    """The start fails with the remedy, whoever starts."""
    here["HOLDFAST_SCHEMA"] = "never_migrated"
    done = await holdfast_command(*WORKER, "--processes", processes, "--log-format", "json", **here)
    assert done.code == 1
    assert done.err.splitlines()[-1].endswith("run `holdfast migrate --schema never_migrated`")


async def test_a_start_without_a_database_fails_unless_told_to_wait(
    start_holdfast: Any, holdfast_command: Any
) -> None:
    """A wrong address is found out at once; an orchestrator may prefer to wait, and is answered meanwhile."""
    away = {"HOLDFAST_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/x"}
    done = await holdfast_command(*WORKER, **away)
    assert (done.code, "PostgreSQL cannot be reached" in done.err) == (1, True)
    port = free_port()
    options = ("--wait-for-database", "--metrics-port", str(port))
    program = await start_holdfast(*WORKER, *options, **away)
    await program.probe.wait_for("database.awaited", times=2)
    assert (await asyncio.to_thread(page, port, "/livez"))[0] == 200
    assert (await asyncio.to_thread(page, port, "/readyz"))[0] == 503
    program.send(signal.SIGTERM)
    assert await program.ended() == 0


async def test_without_listen_a_worker_polls(
    start_holdfast: Any, here: dict[str, str], client: holdfast.Client, eventually: Any, db: ThrowawayDatabase
) -> None:
    """A flag turns LISTEN off, and work is found all the same."""
    await start_holdfast(*WORKER, "--no-listen", "--poll", "200ms", **here)
    await eventually(lambda: db.value("select count(*) from holdfast.workers where state = 'online'"))
    handle = await client.enqueue(request("greet", '{"name": "you"}'))
    assert await client.wait(handle.id, timeout=20) == "hello you"
    listening = (
        "select count(*) from pg_stat_activity "
        "where query ilike 'listen %' and application_name = 'holdfast worker'"
    )
    assert await db.value(listening) == 0


async def test_metrics_tell_what_the_worker_did_and_whether_it_is_ready(
    start_holdfast: Any, here: dict[str, str], client: holdfast.Client, running_nap: Any
) -> None:
    """Counts appear once outcomes are recorded; a stopping worker is alive and not ready."""
    port = free_port()
    program = await start_holdfast(*WORKER, "--metrics-port", str(port), **here)
    handle = await client.enqueue(request("greet", '{"name": "you"}'))
    await client.wait(handle.id, timeout=20)
    await running_nap()
    text = (await asyncio.to_thread(page, port, "/metrics"))[1]
    assert 'holdfast_jobs_processed_total{kind="greet",outcome="ok"} 1.0' in text
    assert 'holdfast_jobs_in_flight{kind="nap"} 1.0' in text
    assert 'holdfast_queue_depth{queue="default",state="available"}' in text
    assert (await asyncio.to_thread(page, port, "/readyz"))[0] == 200
    program.send(signal.SIGTERM)
    await program.probe.wait_for("stop.requested")
    assert (await asyncio.to_thread(page, port, "/readyz"))[0] == 503
    assert (await asyncio.to_thread(page, port, "/livez"))[0] == 200


async def test_a_port_that_is_taken_is_named(holdfast_command: Any, here: dict[str, str]) -> None:
    """A worker that cannot be watched does not start."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = await holdfast_command(*WORKER, "--metrics-port", str(port), **here)
    assert done.code == 2
    assert f"metrics cannot be served on 127.0.0.1 port {port}" in done.err


async def test_several_processes_work_under_one_command(
    start_holdfast: Any, here: dict[str, str], db: ThrowawayDatabase, eventually: Any
) -> None:
    """Each has its own name and metrics port; a killed one is replaced; a stop ends all of them."""
    port = free_port()
    options = ("--processes", "2", "--name", "shop", "--metrics-port", str(port))
    program = await start_holdfast(*WORKER, *options, **here)
    online = "select count(*) = 2 from holdfast.workers where state = 'online'"
    await eventually(lambda: db.value(online))
    names = await db.fetch("select name, pid from holdfast.workers order by name")
    assert [name for name, _ in names] == ["shop-0", "shop-1"]
    for number in (0, 1):
        assert (await asyncio.to_thread(page, port + number, "/livez"))[0] == 200
    os.kill(names[1][1], signal.SIGKILL)
    again = "select count(*) from holdfast.workers where name = 'shop-1' and state = 'online' and pid <> $1"
    await eventually(lambda: db.value(again, names[1][1]))
    program.send(signal.SIGTERM)
    assert await program.ended() == 0


async def test_the_end_of_its_terminal_stops_a_supervisor_like_a_first_signal(
    start_holdfast: Any, here: dict[str, str], running_nap: Any, db: ThrowawayDatabase, eventually: Any
) -> None:
    """It ends after its processes, which end their jobs, however often it is told."""
    program = await start_holdfast(*WORKER, "--processes", "2", "--grace", "1h", **here)
    await eventually(lambda: db.value("select count(*) = 2 from holdfast.workers where state = 'online'"))
    job_id = await running_nap(args='{"seconds": 1}')
    for _ in range(3):
        program.send(signal.SIGHUP)
    assert await program.ended() == 0
    assert (
        await db.value("select outcome from holdfast.finished_jobs where job_id = $1", job_id) == "completed"
    )
    assert await db.value("select count(*) from holdfast.workers where state = 'offline'") == 2


async def test_workers_stop_when_their_supervisor_is_killed(
    start_holdfast: Any, here: dict[str, str], db: ThrowawayDatabase, eventually: Any
) -> None:
    """Nobody is left behind by a SIGKILL: the end of the pipe is a signal too."""
    program = await start_holdfast(*WORKER, "--processes", "2", **here)
    await eventually(lambda: db.value("select count(*) = 2 from holdfast.workers where state = 'online'"))
    program.send(signal.SIGKILL)
    assert await program.ended() == -signal.SIGKILL
    assert await db.value("select count(*) from holdfast.workers where state = 'offline'") == 2
