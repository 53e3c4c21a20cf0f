"""CPU handlers in child processes: kept warm, killed hard, and never a danger to the worker."""

import asyncio
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.client.operator import Operator
from holdfast.errors import LeaseLost, OptionInvalid
from holdfast.model.job import ClaimedJob
from holdfast.store.database import DatabaseConfig
from holdfast.store.sync_sessions import SyncSessions
from holdfast.testing import ThrowawayDatabase
from holdfast.worker import wire
from holdfast.worker.child import Link, LinkLogHandler, LinkPort
from holdfast.worker.processes import Child
from tests.worker import handlers

ROOT = Path(__file__).parents[2]


def app_of(*functions: Any, **options: Any) -> holdfast.App:
    """An app that runs these functions in processes, each under its own name."""
    app = holdfast.App()
    for function in functions:
        app.job(kind=function.__name__, executor="process", retry=handlers.SOON, **options)(function)
    return app


@pytest.fixture
def ask(client: holdfast.Client) -> Any:
    """Enqueues a job of this kind and waits for its result: ``await ask(app, "pid")``."""

    async def go(app: holdfast.App, kind: str, **args: Any) -> Any:
        return await client.wait((await client.enqueue(app.request(kind, args))).id, timeout=30)

    return go


async def test_a_child_is_not_the_worker_and_is_kept_for_the_next_job(work: Any, ask: Any) -> None:
    """Two jobs one after the other run in one and the same child, which is not the worker's process."""
    app = app_of(handlers.pid)
    await work(app, slots=2)
    first, second = [await ask(app, "pid") for _ in range(2)]
    assert first == second != os.getpid()


async def test_handlers_run_side_by_side_in_children_of_their_own(
    work: Any, client: holdfast.Client, tmp_path: Path, eventually: Any
) -> None:
    """As many children run as there are slots, each with one handler at a time."""
    app = app_of(handlers.hold)
    await work(app, slots=2)
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
        await client.enqueue(app.request("hold", {"folder": str(folder)}))
    for folder in folders:
        await eventually(lambda folder=folder: asyncio.to_thread(_told, folder / "begun"))
    assert len({_told(folder / "begun") for folder in folders}) == 2


def _told(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def test_a_thread_that_is_left_over_does_not_speak_for_the_next_job(
    work: Any, ask: Any, client: holdfast.Client, db: ThrowawayDatabase
) -> None:
    """Its own attempt is over: it is told so, and nothing of the job that runs is touched."""
    app = app_of(handlers.leave_a_thread, handlers.meet_a_thread)
    await work(app, slots=1)
    await ask(app, "leave_a_thread")
    late = await client.enqueue(app.request("meet_a_thread", {}))
    assert await client.wait(late.id, timeout=30) == ["LeaseLost", "LeaseLost", None]
    assert [line.line async for line in Operator(db.database, "me").jobs.logs(late.id)] == [
        "mine",
        "mine as well",
    ]
    assert await db.fetch("select from holdfast.checkpoints") == []


async def test_who_ends_in_time_has_although_somebody_keeps_the_loop(
    work: Any, client: holdfast.Client, tmp_path: Path, eventually: Any
) -> None:
    """What the child said before its time was over is heard first, however late the loop comes to either."""
    app = app_of(handlers.nap, timeout=2.0, max_attempts=1)

    @app.job
    async def keep_the_loop() -> None:
        time.sleep(3.0)  # noqa: ASYNC251 - what it is about

    await work(app, slots=2)
    job = await client.enqueue(app.request("nap", {"folder": str(tmp_path), "seconds": 0.7}))

    async def has_begun() -> bool:
        return (tmp_path / "begun").exists()

    await eventually(has_begun)
    await client.enqueue(keep_the_loop.job())
    assert await client.wait(job.id, timeout=30) == "slept"


def test_nothing_of_a_call_comes_after_its_ending() -> None:
    """Neither progress nor the end of a transaction: the parent would take them for the next call's."""
    ours, theirs = socket.socketpair()
    link, nowhere = Link(theirs), SyncSessions(DatabaseConfig(dsn="postgresql://nobody@127.0.0.1/nowhere"))
    with ours, theirs, link._stream:
        port = LinkPort(link, claimed("leave_a_thread", "{}"), nowhere)
        link.begin(port)
        port.progress(0.5, None)
        link.end(wire.Returned())
        port.progress(0.9, "late")
        port._settled(True)
        with pytest.raises(LeaseLost, match="attempt 1 of job 1"):
            port._settle()
        link.begin(LinkPort(link, claimed("meet_a_thread", "{}"), nowhere))
        port.progress(1.0, "later")
        port._settled(True)
        told = wire.frame(wire.Progress(0.5, None)) + wire.frame(wire.Returned())
        assert ours.recv(10_000) == told
        assert select.select([ours], [], [], 0)[0] == []


def test_no_line_of_a_log_comes_after_its_ending() -> None:
    """A thread that has just seen whose line it is may find the call over when it says it."""
    ours, theirs = socket.socketpair()
    link, nowhere = Link(theirs), SyncSessions(DatabaseConfig(dsn="postgresql://nobody@127.0.0.1/nowhere"))
    record = logging.LogRecord("shop", logging.INFO, __file__, 1, "packed", None, None)
    with ours, theirs, link._stream:
        port, log = LinkPort(link, claimed("leave_a_thread", "{}"), nowhere), LinkLogHandler(link)
        link.begin(port)
        log.begin(port)
        log.emit(record)
        link.end(wire.Returned())
        log.emit(record)
        link.begin(LinkPort(link, claimed("meet_a_thread", "{}"), nowhere))
        log.emit(record)
        told = wire.frame(wire.Line(logging.INFO, "packed")) + wire.frame(wire.Returned())
        assert ours.recv(10_000) == told
        assert select.select([ours], [], [], 0)[0] == []


def test_half_a_message_means_that_the_parent_hung_up() -> None:
    """It has died while it spoke, and its child is not to live on because of that."""
    ours, theirs = socket.socketpair()
    link = Link(theirs)
    with theirs, link._stream:
        with ours:
            ours.sendall(wire.frame(wire.Answer(1))[:-1])
        assert link.hear() is None


async def test_a_handler_runs_on_its_process_main_thread(work: Any, ask: Any) -> None:
    """Libraries that insist on the main thread are content."""
    app = app_of(handlers.main_thread)
    await work(app)
    assert await ask(app, "main_thread") is True


@pytest.mark.parametrize(
    ("how", "end"),
    [
        ("exit", "ended with exit code 7"),
        ("segfault", "was killed by SIGSEGV"),
        ("kill", r"was killed by SIGKILL \(the kernel does that when memory runs out\)"),
    ],
)
async def test_a_child_that_dies_fails_its_attempt_and_says_how(
    how: str, end: str, work: Any, ask: Any
) -> None:
    """The error names the signal or the exit code; the worker goes on with a fresh child."""
    app = app_of(handlers.die, handlers.add, max_attempts=1)
    await work(app, slots=1)
    with pytest.raises(holdfast.JobFailed, match=f"ChildDied: the handler's process {end}"):
        await ask(app, "die", how=how)
    assert await ask(app, "add", a=1, b=2) == 3


async def test_the_attempt_after_a_death_gets_a_fresh_child(
    work: Any, ask: Any, db: ThrowawayDatabase
) -> None:
    """A handler that ended its whole process is tried again like after any error."""
    app = app_of(handlers.die_once)
    await work(app)
    assert await ask(app, "die_once") == 1
    assert await db.value("select reason from holdfast.attempts") == (
        "ChildDied: the handler's process ended with exit code 7"
    )


async def test_a_child_that_died_idle_costs_no_attempt(work: Any, ask: Any, db: ThrowawayDatabase) -> None:
    """A warm child that something killed between two jobs is replaced without a failure."""
    app = app_of(handlers.pid)
    await work(app, slots=1)
    first = await ask(app, "pid")
    os.kill(first, signal.SIGKILL)
    assert await ask(app, "pid") != first
    assert await db.value("select count(*) from holdfast.attempts") == 0


async def test_a_program_of_the_handler_dies_with_it(
    work: Any, client: holdfast.Client, cancel: Any, eventually: Any, tmp_path: Path
) -> None:
    """A hard kill takes the handler's whole process group, not only the interpreter."""
    app = app_of(handlers.leave_a_child)
    await work(app)
    path = tmp_path / "pid"
    job = await client.enqueue(app.request("leave_a_child", {"path": str(path)}))
    await eventually(lambda: asyncio.to_thread(lambda: path.exists() and path.read_text()))
    await cancel(job.id)
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(job.id, timeout=20)
    await eventually(lambda: asyncio.to_thread(_is_dead, int(path.read_text())))


def _is_dead(pid: int) -> bool:
    # Nobody may have collected an orphan yet, so a zombie counts as dead.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_signals_of_a_terminal_leave_the_child_alone(work: Any, ask: Any) -> None:
    """SIGINT and SIGTERM are for the worker, which decides what becomes of its children."""
    app = app_of(handlers.ignore_signals)
    await work(app)
    assert await ask(app, "ignore_signals") == "still here"


async def test_the_dsn_is_nowhere_to_be_seen(work: Any, ask: Any, db: ThrowawayDatabase) -> None:
    """Neither the child's command line nor the environment of what it starts holds the address."""
    app = app_of(handlers.show)
    await work(app)
    shown = await ask(app, "show", path="x")
    assert db.dsn not in shown["command"]
    assert db.dsn not in shown["environment"]
    assert "holdfast.worker.child" in shown["command"]


async def test_idle_children_leave_with_their_worker(work: Any, ask: Any) -> None:
    """When a worker has stopped, none of its children is left."""
    app = app_of(handlers.pid)
    process = await work(app)
    pid = await ask(app, "pid")
    await process.stop(5.0)
    assert _is_dead(pid)


@pytest.mark.parametrize("busy", [False, True])
async def test_children_die_with_a_worker_that_was_killed(
    busy: bool, db: ThrowawayDatabase, client: holdfast.Client, eventually: Any, tmp_path: Path
) -> None:
    """SIGKILL of the worker leaves neither an idle child nor one that is hard at work."""
    program = "import asyncio, sys; from tests.worker.program import work; asyncio.run(work(*sys.argv[1:]))"
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", program, db.dsn, db.schema, cwd=ROOT)
    try:
        first = await client.enqueue(holdfast.JobRequest("pid", "{}"))
        pid = await client.wait(first.id, timeout=30)
        if busy:
            arguments = f'{{"path": "{tmp_path / "pid"}"}}'
            await client.enqueue(holdfast.JobRequest("spin", arguments))
            await eventually(lambda: asyncio.to_thread((tmp_path / "pid").exists))
    finally:
        worker.kill()
        await worker.wait()
    await eventually(lambda: asyncio.to_thread(_is_dead, pid))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_a_script_runs_its_own_handlers(loop: str, db: ThrowawayDatabase, tmp_path: Path) -> None:
    """Handlers of ``__main__`` are found as multiprocessing's spawn finds them: the script is loaded anew."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    run = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(script), loop, db.dsn, db.schema],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.stdout.split() == ["42", "__mp_main__"], run.stderr


SCRIPT = """
import asyncio, importlib, sys
import holdfast
from holdfast.cli.wiring import WorkerProcess
from holdfast.store.database import DatabaseConfig
from holdfast.worker.config import WorkerConfig

app = holdfast.App()

@app.job(executor="process")
def double(n: int) -> list:
    return [2 * n, __name__]

async def main(dsn, schema):
    config = WorkerConfig(database=DatabaseConfig(dsn=dsn, schema=schema), queues=("default",))
    process = WorkerProcess(app, config)
    await process.start()
    async with holdfast.Client(dsn, schema=schema) as client:
        handle = await client.enqueue(double.job(21))
        print(*await client.wait(handle.id, timeout=30))
    await process.stop(0.0)

if __name__ == "__main__":
    loop = importlib.import_module(sys.argv[1]).new_event_loop
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main(*sys.argv[2:]))
"""


def test_a_handler_that_no_child_could_import_is_refused() -> None:
    """Registration says what to do, long before a job fails for it."""
    app = holdfast.App()

    def local() -> None: ...

    for function in (local, lambda: None, handlers.Strange.spell):
        with pytest.raises(OptionInvalid, match="top level of a module") as refusal:
            app.job(kind="it", executor="process")(function)
        assert refusal.value.option == "executor of 'it'"


def test_an_async_handler_is_refused_as_a_process() -> None:
    """A coroutine belongs to the loop."""
    app = holdfast.App()
    with pytest.raises(OptionInvalid, match="an async handler runs on the loop"):
        app.job(kind="it", executor="process")(handlers.hold_on_loop)


async def test_a_child_that_cannot_start_says_so(
    monkeypatch: pytest.MonkeyPatch, work: Any, ask: Any
) -> None:
    """An interpreter that ends at once is an error of the attempt, not a hang."""
    monkeypatch.setattr(
        "holdfast.worker.processes._command", lambda _: [sys.executable, "-c", "raise SystemExit(9)"]
    )
    app = app_of(handlers.pid, max_attempts=1)
    await work(app)
    with pytest.raises(holdfast.JobFailed, match="ChildDied: the handler's process ended with exit code 9"):
        await ask(app, "pid")


async def test_a_child_that_babbles_is_killed(monkeypatch: pytest.MonkeyPatch, work: Any, ask: Any) -> None:
    """What is no message is never interpreted: the attempt fails and the child goes."""

    def babble(channel: int) -> list[str]:
        return [
            sys.executable,
            "-c",
            f"import os, time; os.write({channel}, b'\\0\\0\\0\\2{{}}'); time.sleep(600)",
        ]

    monkeypatch.setattr("holdfast.worker.processes._command", babble)
    app = app_of(handlers.pid, max_attempts=1)
    await work(app)
    with pytest.raises(
        holdfast.JobFailed, match="ChildDied: the handler's process said what nobody understands"
    ):
        await ask(app, "pid")


async def test_a_busy_child_kills_itself_when_its_line_is_closed(
    monkeypatch: pytest.MonkeyPatch, eventually: Any, tmp_path: Path
) -> None:
    """Where nobody can learn what the handler comes to, it stops, also without help from the kernel."""
    monkeypatch.setattr("holdfast.worker.processes.LEAVE_LIMIT", 600.0)
    child = await Child.start(DatabaseConfig(dsn="postgresql:///nowhere"))
    args = msgspec.json.encode({"path": str(tmp_path / "begun")}).decode()
    child.write(wire.Call("tests.worker.program", "spin", claimed("spin", args)))
    await eventually(lambda: asyncio.to_thread((tmp_path / "begun").exists))
    async with asyncio.timeout(30):
        await child.leave()
    assert child.exit_code == -signal.SIGKILL


def claimed(kind: str, args: str) -> ClaimedJob:
    """An attempt as a claim would hand it over."""
    return ClaimedJob(
        id=1,
        attempt=1,
        failures=0,
        kind=kind,
        queue="default",
        priority=5,
        max_attempts=1,
        timeout=300.0,
        args=args,
        retry=None,
        meta="{}",
        tags=[],
        trace=None,
        enqueued=time.time(),
        claimed=time.time(),
        started=True,
    )


async def test_a_child_leaves_when_its_line_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle child whose parent hangs up ends by itself, with exit code 0."""
    monkeypatch.setattr("holdfast.worker.processes.LEAVE_LIMIT", 60.0)
    child = await Child.start(DatabaseConfig(dsn="postgresql:///nowhere"))
    await child.leave()
    assert child.exit_code == 0
