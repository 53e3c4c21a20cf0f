"""A workflow with all that a run may do, and a worker process for it that may be doomed."""

import asyncio
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

import holdfast
from holdfast.cli.wiring import WorkerProcess
from holdfast.maintenance.config import MaintenanceConfig
from holdfast.store.database import DatabaseConfig
from holdfast.store.sqlfile import rendered
from holdfast.worker.config import WorkerConfig
from tests.scenarios.doom import Doom

TTL = 1.0
BOOK = "insert into holdfast.bookings (what) values ($1)"
AT_ONCE = holdfast.Constant(timedelta(milliseconds=20))
app = holdfast.App()


class Shop(msgspec.Struct, frozen=True):
    """Where a run leaves its traces: business rows in a *schema*, calls of steps in the file *diary*."""

    schema: str
    diary: str

    def write(self, run: holdfast.Run, what: str) -> "Call":
        """Return what a step writes when it is called."""
        return Call(self, run.id, run.attempt, what)


class Call(msgspec.Struct, frozen=True):
    """A call of a step by one attempt of a run."""

    shop: Shop
    run_id: int
    attempt: int
    what: str

    def note(self) -> int:
        """Leave a line in the diary, which no rollback takes back; answers how many such lines there were."""
        path = Path(self.shop.diary)
        before = path.read_text() if path.exists() else ""
        line = json.dumps([self.run_id, self.attempt, self.what])
        with path.open("a") as diary:
            diary.write(line + "\n")
        return sum(json.loads(one)[2] == self.what for one in before.splitlines())


async def book(connection: Any, call: Call) -> str:
    """Write a business row, which commits with the step."""
    call.note()
    await connection.execute(rendered(BOOK, call.shop.schema), call.what)
    return f"booked {call.what}"


def weighed(call: Call) -> str:
    """Work in a thread."""
    call.note()
    return call.what


async def wrapped(call: Call) -> str:
    """Work on the loop."""
    call.note()
    return call.what


async def stumble(call: Call) -> str:
    """Fail at the first call and succeed at the next."""
    if call.note() == 0:
        msg = "stumbled"
        raise RuntimeError(msg)
    return call.what


async def refuse(call: Call) -> None:
    """Fail for good."""
    call.note()
    msg = f"no {call.what}"
    raise ValueError(msg)


@app.job(queue="orders")
async def receipt(job: holdfast.Job, shop: Shop) -> None:
    """A job that a run leaves behind; its business row commits with its completion."""
    async with job.transaction() as connection:
        await connection.execute(rendered(BOOK, shop.schema), "receipt")


@app.job(queue="orders")
async def measure(number: int) -> int:
    """One of many children."""
    return number * number


@app.workflow(queue="orders")
async def ship(run: holdfast.Run, shop: Shop) -> None:
    """A child that fails, and makes up for what it did."""
    run.on_failure(book, shop.write(run, "unload"), name="unload", transaction=True)
    await run.step(book, shop.write(run, "load"), name="load", transaction=True)
    run.on_failure(wrapped, shop.write(run, "apologise"), name="apologise")
    await run.step(refuse, shop.write(run, "sail"), name="sail")


@app.workflow(queue="orders")
async def fulfil(run: holdfast.Run, shop: Shop) -> list[Any]:
    """Steps of every sort, branches, signals that come early and late, a timer, children, an outbox."""
    told: list[Any] = [await run.step(weighed, shop.write(run, "weigh"), name="weigh")]
    told.append(await run.step(book, shop.write(run, "order"), name="order", transaction=True))
    run.enqueue(receipt.job(shop))
    try:
        await run.step(refuse, shop.write(run, "discount"), name="discount")
    except ValueError as refused:
        told.append(str(refused))
    told.append(await run.wait_signal("early"))
    async with run.branches() as branches:
        packed = branches.start("pack", pack(run, shop))
        label = branches.start(
            "label", run.step(stumble, shop.write(run, "label"), name="label", max_attempts=9, retry=AT_ONCE)
        )
    told += [packed.result(), label.result()]
    told.append(await run.wait_signal("approved"))
    told.append(await run.children([measure.job(2), measure.job(3)]))
    try:
        await run.child(ship.job(shop))
    except holdfast.ChildFailed as failed:
        told.append(failed.reason)
    return told


async def pack(run: holdfast.Run, shop: Shop) -> str:
    """A branch that sleeps for so long that the run leaves its worker."""
    await run.step(wrapped, shop.write(run, "wrap"), name="wrap")
    await run.sleep(1.1)
    return await run.step(wrapped, shop.write(run, "tape"), name="tape")


RESULT = [
    "weigh",
    "booked order",
    "no discount",
    "bird",
    "tape",
    "label",
    {"by": "ada"},
    [4, 9],
    "ValueError: no sail",
]
BOOKINGS = ["load", "order", "receipt", "unload"]
OUTCOMES = [
    ("fulfil", "completed"),
    ("measure", "completed"),
    ("measure", "completed"),
    ("receipt", "completed"),
    ("ship", "failed"),
]


async def work(settings: dict[str, Any]) -> None:
    """Work until somebody ends this process."""
    Doom(settings["schema"], Path(settings["trace"]), settings["death"]).watch()
    database = DatabaseConfig(dsn=settings["dsn"], schema=settings["schema"], pool_size=3)
    config = WorkerConfig(database=database, queues=("orders",), slots=4, ttl=TTL, name=str(os.getpid()))
    process = WorkerProcess(app, config, maintenance=MaintenanceConfig(leader_ttl=0.5))
    await process.start()
    await asyncio.Event().wait()
