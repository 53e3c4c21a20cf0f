"""A worker process with jobs and runs of every sort, which note in a diary of their own what they do."""

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import asyncpg

import holdfast
from holdfast.cli.wiring import WorkerProcess
from holdfast.maintenance.config import MaintenanceConfig
from holdfast.model.delivery import QUEUE as DELIVERIES
from holdfast.runners.courier import Courier
from holdfast.store.database import DatabaseConfig
from holdfast.store.sqlfile import rendered
from holdfast.worker.config import WorkerConfig
from holdfast.worker.worker import Worker

TTL = 1.0
NOTE = "insert into holdfast.diary (job_id, attempt, what) values ($1, $2, $3)"
QUEUES = ("free", "narrow", "keyed", "runs")
SOON = holdfast.Constant(timedelta(milliseconds=100))
app = holdfast.App()


class Diary:
    """Lines that no rollback takes back, unless they are written on a job's own connection."""

    async def open(self, dsn: str, schema: str) -> None:
        """Connect, past Holdfast."""
        self._insert = rendered(NOTE, schema)
        self._pool = await asyncpg.create_pool(dsn, min_size=1, max_size=3)

    async def note(self, job_id: int, attempt: int, what: str, connection: Any = None) -> None:
        """Write a line."""
        await (connection or self._pool).execute(self._insert, job_id, attempt, what)


diary = Diary()


@app.job(queue="free", max_attempts=3, retry=SOON, timeout=20)
async def task(job: holdfast.Job, does: str, seconds: float) -> Any:
    """Take some time, and come to one of the ends to which handlers come."""
    await diary.note(job.id, job.attempt, "begun")
    try:
        await asyncio.sleep(seconds)
    finally:
        await diary.note(job.id, job.attempt, "ended")
    match does:
        case "return":
            return job.attempt
        case "snooze" if job.attempt < 3:
            return holdfast.Snooze(0.2)
        case "give up":
            return holdfast.Cancel(does)
        case "spoil":
            raise holdfast.Poison(does)
        case "crash" if job.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        case "fail":
            raise RuntimeError(does)
        case "stumble" if job.attempt == 1:
            raise RuntimeError(does)
    async with job.transaction() as connection:
        await diary.note(job.id, job.attempt, "done", connection)
    return None


async def write(connection: Any, run_id: int, attempt: int, step: str) -> None:
    """Write a line that commits with the step."""
    await diary.note(run_id, attempt, step, connection)


async def stumble() -> None:
    """Fail, as a step."""
    msg = "stumbled"
    raise RuntimeError(msg)


@app.workflow(queue="runs", max_attempts=4, retry=SOON, timeout=30)
async def journey(run: holdfast.Run, plan: list[Any]) -> None:
    """Go the way that is planned: a list of legs, each of them a name and what belongs to it."""
    await go(run, plan, "leg")


async def go(run: holdfast.Run, plan: list[Any], way: str) -> None:
    """Go along one of the ways of a run."""
    for nth, (leg, *how) in enumerate(plan):
        here = f"{way}.{nth}"
        match leg:
            case "write":
                await run.step(write, run.id, run.attempt, here, name=here, transaction=True)
            case "stumble":
                with suppress(RuntimeError):
                    await run.step(stumble, name=here, max_attempts=2, retry=SOON)
            case "vow":
                vow, undo = f"vow {here}", f"undo {here}"
                await run.step(write, run.id, run.attempt, vow, name=vow, transaction=True)
                run.on_failure(write, run.id, run.attempt, undo, name=undo, transaction=True)
            case "rest":
                await run.sleep(how[0])
            case "ask":
                with suppress(holdfast.SignalTimeout):
                    await run.wait_signal(*how[:1], timeout=how[1])
            case "bear":
                family = [app.request(kind, given) for kind, given in how[1]]
                await run.children(family, policy=how[0], return_failures=True)
            case "fork":
                async with run.branches() as branches:
                    for twig, part in enumerate(how[0]):
                        branches.start(str(twig), go(run, part, f"{here}.{twig}"))
            case "fall":
                raise RuntimeError(leg)


class Carrier:
    """Carries deliveries beside the work of a process, under a lease as short as that of the work."""

    def __init__(self, process: WorkerProcess, config: WorkerConfig) -> None:
        app = Courier(process.database, private=True).app()
        self._worker = Worker(app, process.database, config, process.events)
        assert process.notifications is not None
        process.notifications.subscribe(self._worker.notified)

    async def start(self) -> None:
        """Begin."""
        await self._worker.start()

    async def stop(self) -> None:
        """End, when what is under way has."""
        await self._worker.stop()


async def work(dsn: str, schema: str, slots: int) -> None:
    """Work until SIGTERM; only a notification lets this worker find what came while it slept."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await diary.open(dsn, schema)
    database = DatabaseConfig(dsn=dsn, schema=schema, pool_size=3)
    config = WorkerConfig(database=database, queues=QUEUES, slots=slots, ttl=TTL, poll=600, grace=1.0)
    process = WorkerProcess(app, config, maintenance=MaintenanceConfig(leader_ttl=0.5, count_rest=0.5))
    process.parts.append(Carrier(process, replace(config, queues=(DELIVERIES,))))
    await process.start()
    await ended.wait()
    await process.stop()
