"""Threads for sync handlers: reused, and never a reason for a process to stay."""

import asyncio
import subprocess
import sys
import threading

import pytest

from holdfast.testing import ThrowawayDatabase
from holdfast.worker.threads import Threads


async def test_a_thread_is_kept_for_the_next_call() -> None:
    """Calls one after the other run in one thread; calls at the same time run in several."""
    threads = Threads()
    first, _ = await threads.run(threading.get_ident)
    second, _ = await threads.run(threading.get_ident)
    assert first == second != threading.get_ident()
    both = threading.Barrier(2, timeout=20)
    results = await asyncio.gather(threads.run(both.wait), threads.run(both.wait))
    assert sorted(value for value, _ in results) == [0, 1]
    threads.stop()


@pytest.mark.parametrize("kind", [StopIteration, SystemExit, KeyboardInterrupt, asyncio.CancelledError])
async def test_what_a_future_cannot_carry_comes_back_as_a_value(kind: type[BaseException]) -> None:
    """Whatever a call raises is answered, and neither hangs nor ends the loop."""
    threads = Threads()

    def call() -> None:
        raise kind

    async with asyncio.timeout(20):
        value, error = await threads.run(call)
    assert value is None
    assert type(error) is kind
    threads.stop()


async def test_a_handler_that_never_returns_does_not_keep_its_process(db: ThrowawayDatabase) -> None:
    """A worker that stopped ends although a thread of its own is stuck: the job is handed back unspent."""
    run = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", STUCK, db.dsn, db.schema],
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert (run.stdout.split(), run.returncode) == (["stopped"], 0), run.stderr
    assert await db.fetch("select state, failures from holdfast.live_jobs") == [("available", 0)]


STUCK = """
import asyncio, sys, threading
import holdfast
from holdfast.cli.wiring import WorkerProcess
from holdfast.store.database import DatabaseConfig
from holdfast.worker.config import WorkerConfig

app = holdfast.App()
begun = threading.Event()

@app.job
def stuck() -> None:
    begun.set()
    threading.Event().wait()

async def main(dsn, schema):
    config = WorkerConfig(database=DatabaseConfig(dsn=dsn, schema=schema), queues=("default",))
    process = WorkerProcess(app, config)
    await process.start()
    async with holdfast.Client(dsn, schema=schema) as client:
        await client.enqueue(stuck.job())
        assert await asyncio.to_thread(begun.wait, 20)
    await process.stop(0.0)
    print("stopped")

asyncio.run(main(*sys.argv[1:]))
"""
