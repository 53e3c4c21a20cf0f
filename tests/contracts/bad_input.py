"""What users get wrong: each case of docs/reference/bad-input.md as something that is done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import holdfast
from holdfast.cli.wiring import WorkerProcess
from holdfast.maintenance.config import MaintenanceConfig
from holdfast.runtime.settings import load
from holdfast.store import migrate
from holdfast.testing import ThrowawayDatabase, drain
from holdfast.worker.config import WorkerConfig

NOTHING_MADE = "nothing is enqueued"
NOT_REGISTERED = "nothing is registered"
NOT_BEGUN = "no job is touched"
FAILED = "the job is kept as failed, with this reason"
AS_IT_WAS = "the run goes on as it was"

app = holdfast.App()


@app.job
async def greet(name: str, times: int = 1) -> str:
    """A handler with types to check."""
    return name * times


@app.job
async def keep(value: Any) -> None:
    """A handler that takes any JSON data."""


@app.job
async def answer(with_what: str) -> Any:
    """A handler whose results cannot be stored."""
    return {"object": object(), "size": "x" * 1_100_000, "NUL": "\x00", "Snooze": holdfast.Snooze(-1)}[
        with_what
    ]


async def made(with_what: str) -> Any:
    """A step whose results cannot be kept."""
    return await answer.function(with_what)


@app.workflow
async def review(run: holdfast.Run, with_what: str) -> Any:
    """A workflow that does what its argument says."""
    if with_what == "tasks":
        return await asyncio.gather(run.step(made, ""), run.step(made, ""))
    if with_what == "approved":
        return await run.wait_signal("approved")
    if with_what == "clock":
        return await run.sleep_until(datetime(2030, 1, 1))  # noqa: DTZ001
    return await run.step(made, with_what)


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a case takes place."""

    client: holdfast.Client
    db: ThrowawayDatabase


Doing = Callable[[Scene], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Case:
    """An *input* as the page shows it, what *holds* after it, and how it is *done*."""

    input: str
    holds: str
    done: Doing


CASES: list[Case] = []


def case(input: str, holds: str) -> Callable[[Doing], Doing]:
    """Enter a function as a case."""

    def enter(done: Doing) -> Doing:
        CASES.append(Case(input, holds, done))
        return done

    return enter


def enqueued(input: str, **options: Any) -> None:
    """Enter the enqueue of a good job with bad options."""
    case(input, NOTHING_MADE)(lambda scene: scene.client.enqueue(greet.job(name="x"), **options))


def asked(input: str, handler: Any, *args: Any, **kwargs: Any) -> None:
    """Enter the making of a request with bad arguments."""

    async def make(scene: Scene) -> object:
        return await scene.client.enqueue(handler.job(*args, **kwargs))

    case(input, NOTHING_MADE)(make)


def ran(input: str, kind: str, args: str) -> None:
    """Enter a job by plain SQL that can only fail when it runs."""
    case(input, FAILED)(lambda scene: scene.db.fetch(f"select holdfast.enqueue('{kind}', '{args}')"))


def registered(input: str, act: Callable[[holdfast.App], object]) -> None:
    """Enter something that an application declares."""

    async def declare(_scene: Scene) -> object:
        return act(holdfast.App())

    case(input, NOT_REGISTERED)(declare)


def signalled(input: str, name: str, payload: Any = None) -> None:
    """Enter a signal to a run that waits for one."""

    async def send(scene: Scene) -> object:
        handle = await scene.client.enqueue(review.job(with_what="approved"))
        await drain(app, scene.db)
        return await scene.client.signal(handle.id, name, payload)

    case(input, AS_IT_WAS)(send)


async def nothing() -> None:
    """Takes no run."""


def counting() -> Iterator[int]:
    """Runs nothing when it is called."""
    yield 1


async def forgotten(number: int) -> None:
    """Takes something else."""


def nested(levels: int) -> list[Any]:
    """A list in a list in a list."""
    data: list[Any] = []
    for _ in range(levels):
        data = [data]
    return data


asked("an argument of the wrong type: `greet.job(name=7)`", greet, name=7)
asked("a missing argument: `greet.job()`", greet)
asked('an argument too many: `greet.job(name="x", mood=1)`', greet, name="x", mood=1)
asked('a NUL character: `keep.job("a\\0b")`', keep, "a\0b")
asked('half of a surrogate pair: `keep.job("\\ud800")`', keep, "\ud800")
asked('NaN: `keep.job(float("nan"))`', keep, float("nan"))
asked('infinity: `keep.job(float("inf"))`', keep, float("inf"))
asked('10 MB: `keep.job("x" * 10_000_000)`', keep, "x" * 10_000_000)
asked("a list 100,000 levels deep", keep, nested(100_000))
asked("an integer of 5,001 digits: `keep.job(10**5000)`", keep, 10**5000)
asked("something that is no data: `keep.job(object())`", keep, object())
enqueued("a time without a zone: `run_at=datetime(2030, 1, 1)`", run_at=datetime(2030, 1, 1))  # noqa: DTZ001
enqueued("`run_at` and `delay`", run_at=datetime(2030, 1, 1, tzinfo=UTC), delay=5)
enqueued("a delay into the past: `delay=-1`", delay=-1)
enqueued("a bad priority: `priority=10`", priority=10)
enqueued("no attempt at all: `max_attempts=0`", max_attempts=0)
enqueued('an endless timeout: `timeout=float("inf")`', timeout=float("inf"))
enqueued('an empty queue name: `queue=""`', queue="")
enqueued('an unknown policy: `unique_policy="ignore"`', unique_key="k", unique_policy="ignore")
enqueued('tags as one text: `tags="red"`', tags="red")
enqueued("meta that is no dictionary: `meta=[1]`", meta=[1])
enqueued("an own backoff for one job: `retry=Custom(f)`", retry=holdfast.Custom(lambda n: n))


@case('a unique key that is taken, under `unique_policy="reject"`', "the first job stays as it was")
async def _taken(scene: Scene) -> None:
    for _ in range(2):
        await scene.client.enqueue(greet.job(name="x"), unique_key="k", unique_policy="reject")


@case('a kind that the app does not have: `app.request("greed", {})`', NOTHING_MADE)
async def _unknown(_scene: Scene) -> None:
    app.request("greed", {})


@case("plain SQL with a list for the arguments: `select holdfast.enqueue('greet', '[1]')`", NOTHING_MADE)
async def _no_object(scene: Scene) -> None:
    await scene.db.fetch("select holdfast.enqueue('greet', '[1]')")


@case("plain SQL with a bad priority: `priority => 10`", NOTHING_MADE)
async def _bad_priority(scene: Scene) -> None:
    await scene.db.fetch("select holdfast.enqueue('greet', '{}', priority => 10)")


@case("plain SQL with a kind that no worker knows, after `unknown_grace`", FAILED)
async def _nobody(scene: Scene) -> str:
    await scene.db.fetch("select holdfast.enqueue('greed')")
    config = WorkerConfig(database=scene.db.config, queues=("default",))
    duties = MaintenanceConfig(unknown_grace=0.0, count_rest=0.05)
    process = WorkerProcess(app, config, maintenance=duties)
    await process.start()
    try:
        async with asyncio.timeout(20):
            reason = None
            while reason is None:
                reason = await scene.db.value("select reason from holdfast.finished_jobs")
    finally:
        await process.stop(0.0)
    return str(reason)


ran("plain SQL with arguments that fit no handler: `'{\"name\": 7}'`", "greet", '{"name": 7}')
ran("a result that is no data: `return object()`", "answer", '{"with_what": "object"}')
ran("a result of more than 1 MiB", "answer", '{"with_what": "size"}')
ran("a result with a NUL character", "answer", '{"with_what": "NUL"}')
ran("a rest into the past: `return Snooze(-1)`", "answer", '{"with_what": "Snooze"}')

registered(
    "a retry policy without sense: `Constant(timedelta(-1))`", lambda _: holdfast.Constant(timedelta(-1))
)
registered("jitter above 1: `Exponential(jitter=2)`", lambda _: holdfast.Exponential(jitter=2))
registered(
    'a bad cron expression: `cron="61 * * * *"`',
    lambda new: new.schedule("nightly", keep.job(1), cron="61 * * * *"),
)
registered(
    'a cron expression that never fires: `cron="0 0 30 2 *"`',
    lambda new: new.schedule("nightly", keep.job(1), cron="0 0 30 2 *"),
)
registered(
    'a bad time zone: `timezone="Mars/Olympus"`',
    lambda new: new.schedule("nightly", keep.job(1), cron="@daily", timezone="Mars/Olympus"),
)
registered(
    "a schedule of a handler: `schedule(name, keep, …)`",
    lambda new: new.schedule("nightly", keep, cron="@daily"),  # type: ignore[arg-type]
)
registered("a schedule without a rule", lambda new: new.schedule("nightly", keep.job(1)))
registered("a handler with `*args`", lambda new: new.job(kind="any")(lambda *args: args))
registered(
    "a partial as a handler: `partial(greet, times=2)`", lambda new: new.job(partial(greet.function, times=2))
)
registered("a handler with a `yield`", lambda new: new.job(counting))


registered(
    "a workflow that is no `async def`",
    lambda new: new.workflow(kind="plain")(str),  # type: ignore[arg-type]
)
registered("a workflow without a parameter for its run", lambda new: new.workflow(kind="none")(nothing))  # type: ignore[arg-type]
registered("a workflow whose first parameter is no run", lambda new: new.workflow(kind="job")(forgotten))
registered('a version with an @: `version="1@2"`', lambda new: new.workflow(version="1@2")(review.function))

ran("a step whose result is no data", "review", '{"with_what": "object"}')
ran("a step whose result has more than 1 MiB", "review", '{"with_what": "size"}')
ran("a step whose result has a NUL character", "review", '{"with_what": "NUL"}')
ran("two steps at once in one branch: `gather(run.step(a), run.step(b))`", "review", '{"with_what": "tasks"}')
ran("a time without a zone: `run.sleep_until(datetime(2030, 1, 1))`", "review", '{"with_what": "clock"}')

signalled("a signal without a name", "")
signalled('a payload with a NUL character: `signal(run, "approved", "a\\0b")`', "approved", "a\0b")
signalled("a payload of 10 MB", "approved", "x" * 10_000_000)
signalled("a payload that is no data: `object()`", "approved", object())


@case("a signal to a run that does not exist", NOTHING_MADE)
async def _nobody_hears(scene: Scene) -> None:
    await scene.client.signal(4711, "approved")


@case("a signal to a plain job", "the job goes on as it was")
async def _deaf(scene: Scene) -> None:
    handle = await scene.client.enqueue(greet.job(name="x"))
    await drain(app, scene.db)
    handle = await scene.client.enqueue(greet.job(name="x"))
    await scene.client.signal(handle.id, "approved")


@case("a fork behind a step that has not finished", AS_IT_WAS)
async def _unfinished(scene: Scene) -> None:
    handle = await scene.client.enqueue(review.job(with_what="approved"))
    await drain(app, scene.db)
    await scene.client.fork(handle.id, at="approved")


@case("a resume of a run that is not paused", AS_IT_WAS)
async def _awake(scene: Scene) -> None:
    handle = await scene.client.enqueue(review.job(with_what="approved"))
    await drain(app, scene.db)
    await scene.client.resume(handle.id)


@case("what is no address: `Client(None)`", NOT_BEGUN)
async def _no_address(_scene: Scene) -> None:
    holdfast.Client(None)  # type: ignore[arg-type]


@case('a bad schema name: `Client(dsn, schema="Prod!")`', NOT_BEGUN)
async def _bad_schema(scene: Scene) -> None:
    holdfast.Client(scene.db.dsn, schema="Prod!")


@case("an unknown setting: `HOLDFAST_SLOT=3`", NOT_BEGUN)
async def _unknown_setting(_scene: Scene) -> None:
    load({}, {"HOLDFAST_SLOT": "3"}, folder=Path("/"))


@case("a bad value: `HOLDFAST_SLOTS=many`", NOT_BEGUN)
async def _bad_setting(_scene: Scene) -> None:
    load({}, {"HOLDFAST_SLOTS": "many"}, folder=Path("/"))


@case("a database that is not there", NOTHING_MADE)
async def _dead(_scene: Scene) -> None:
    async with holdfast.Client("postgresql://127.0.0.1:1/none") as client:
        await client.enqueue(greet.job(name="x"))


@case("a schema that was never migrated", NOTHING_MADE)
async def _missing(scene: Scene) -> None:
    async with holdfast.Client(scene.db.dsn, schema="nowhere") as client:
        await client.enqueue(greet.job(name="x"))


@case("a worker on a schema that is ahead of it", NOT_BEGUN)
async def _ahead(scene: Scene) -> None:
    await scene.db.fetch(
        "insert into holdfast.schema_versions (version, title, checksum) values (999, 'later', '')"
    )
    await migrate.check(scene.db.database)
