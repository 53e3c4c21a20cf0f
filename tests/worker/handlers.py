"""Handlers at the top level of a module, where a child process finds them; the tests run them everywhere."""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

from psycopg import sql

import holdfast

SOON = holdfast.Constant(timedelta(milliseconds=10))


def add(a: int, b: int) -> int:
    """Give the sum."""
    return a + b


def pid() -> int:
    """Give the process in which handlers run."""
    return os.getpid()


def fail(job: holdfast.Job) -> str:
    """Fail once, then succeed."""
    if job.failures == 0:
        msg = "no such luck"
        raise RuntimeError(msg)
    return f"after {job.failures}"


def hold(job: holdfast.Job, folder: str) -> str:
    """Say that the first attempt has begun, wait for the word, try every wish; later attempts just return."""
    if job.attempt > 1:
        return "later"
    (Path(folder) / "begun").write_text(str(os.getpid()))
    while not (Path(folder) / "go").exists():
        time.sleep(0.01)
    wishes: dict[str, Any] = {
        "progress": lambda: job.progress(0.5),
        "save": lambda: job.save_checkpoint([1]),
        "delete": job.delete_checkpoint,
        "transaction": job.transaction,
        "check": job.check,
    }
    (Path(folder) / "came").write_text(" ".join(f"{name}:{_came_of(wish)}" for name, wish in wishes.items()))
    return "first"


def _came_of(wish: Any) -> str:
    try:
        wish()
    except holdfast.HoldfastError as error:
        return type(error).__name__
    return "done"


def nap(folder: str, seconds: float) -> str:
    """Say that it has begun, and end so many seconds later."""
    (Path(folder) / "begun").write_text(str(os.getpid()))
    time.sleep(seconds)
    return "slept"


async def hold_on_loop(job: holdfast.Job, folder: str) -> str:
    """The same, on the loop: say also when it is stopped."""
    if job.attempt > 1:
        return "later"
    (Path(folder) / "begun").write_text(str(os.getpid()))
    try:
        while not (Path(folder) / "go").exists():  # noqa: ASYNC110 - other executors have only files
            await asyncio.sleep(0.01)
    finally:
        (Path(folder) / "came").write_text("over")
    return "first"


def answer_cancel(job: holdfast.Job, folder: str) -> Any:
    """Look out for a cancel, as a handler in a thread has to."""
    (Path(folder) / "begun").touch()
    while not job.cancelled:
        time.sleep(0.01)
    return holdfast.Cancel("stopped in good order")


async def be_stubborn(folder: str) -> str:
    """Refuse to be cancelled until the word is given."""
    (Path(folder) / "begun").touch()
    while not (Path(folder) / "go").exists():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.01)
    return "as I pleased"


async def cancel_own_task() -> None:
    """Cancel the task it runs in."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def poison() -> None:
    """Declare the job hopeless."""
    msg = "the repository is gone"
    raise holdfast.Poison(msg)


def snooze(job: holdfast.Job) -> Any:
    """Snooze once, then finish."""
    return holdfast.Snooze(timedelta(milliseconds=20), "not yet") if job.attempt == 1 else "rested"


def cancel() -> Any:
    """End the job as cancelled."""
    return holdfast.Cancel("nobody wants it")


def retry(job: holdfast.Job) -> Any:
    """Ask for another try, then finish."""
    return holdfast.Retry(0.02, "the mirror is busy") if job.failures == 0 else "at last"


def leave(how: str) -> None:
    """Raise what usually ends a program."""
    raise {
        "SystemExit": SystemExit(3),
        "KeyboardInterrupt": KeyboardInterrupt(),
        "GeneratorExit": GeneratorExit(),
    }[how]


def give_up_like_asyncio() -> None:
    """Raise asyncio's own cancellation without having been cancelled."""
    raise asyncio.CancelledError


def stop_iteration() -> None:
    """Raise what neither futures nor coroutines let through."""
    raise StopIteration


class Unspeakable(Exception):
    """An error that cannot even say what it is."""

    def __str__(self) -> str:
        msg = "no words"
        raise RuntimeError(msg)


def unspeakable() -> None:
    """Raise an error whose text raises."""
    raise Unspeakable


class Untellable(Exception):
    """An error that passes every question on, and has nobody who answers."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


def untellable() -> None:
    """Raise an error that fails at whatever it is asked."""
    raise Untellable


class Strange:
    """Data that fails when it is written down."""

    def model_dump(self, **_: Any) -> Any:
        """Fail, as a pydantic model with a broken serializer does."""
        msg = "cannot be dumped"
        raise RuntimeError(msg)

    def spell(self: Any) -> None:
        """Be a function that is no top level name."""


def give_strange_data() -> Any:
    """Return data that raises when it is turned into JSON."""
    return Strange()


def enqueue_badly() -> None:
    """Meet an error about the arguments of another job."""
    raise holdfast.ArgumentsInvalid("other", "missing required field `x`")


def lose_another() -> None:
    """Meet an error about another job's lease."""
    raise holdfast.LeaseLost(999, 3)


def give(what: str) -> Any:
    """Return what no database can keep."""
    return {
        "large": "x" * 1_100_000,
        "object": object(),
        "NUL": "a\x00b",
        "endless": _endless(),
        "surrogate": "\ud800",
        "snooze": holdfast.Snooze(float("nan")),
        "cancel": holdfast.Cancel(None),  # type: ignore[arg-type]
        "retry": holdfast.Retry(0.01, 5),  # type: ignore[arg-type]
    }[what]


def _endless() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def transact(job: holdfast.Job, table: str, how: str) -> str:
    """Write a note together with the completion; *how* says what goes wrong."""
    job.log.info("about to note")
    with job.transaction() as connection:
        connection.execute(
            sql.SQL("insert into {} values (%s)").format(sql.Identifier(*table.split("."))), [job.id]
        )
        job.result = object() if how == "bad result" else {"noted": job.id}
        job.log.info("noted")
        if how == "raise" and job.failures == 0:
            msg = "changed its mind"
            raise RuntimeError(msg)
    return "this is not used"


async def transact_on_loop(job: holdfast.Job, table: str, how: str) -> str:
    """The same, on the loop."""
    job.log.info("about to note")
    async with job.transaction() as connection:
        await connection.copy_records_to_table("notes", schema_name=table.split(".")[0], records=[(job.id,)])
        job.result = object() if how == "bad result" else {"noted": job.id}
        job.log.info("noted")
        if how == "raise" and job.failures == 0:
            msg = "changed its mind"
            raise RuntimeError(msg)
    return "this is not used"


def transact_late(job: holdfast.Job, table: str, folder: str) -> None:
    """Write, and commit on the first attempt only when told to."""
    try:
        with job.transaction() as connection:
            name = sql.Identifier(*table.split("."))
            connection.execute(sql.SQL("insert into {} values (%s)").format(name), [job.id])
            job.result = job.attempt
            if job.attempt == 1:
                (Path(folder) / "begun").touch()
                while not (Path(folder) / "go").exists():
                    time.sleep(0.01)
    except holdfast.LeaseLost as error:
        (Path(folder) / "came").write_text(f"LeaseLost: {error}")
        raise


async def transact_late_on_loop(job: holdfast.Job, table: str, folder: str) -> None:
    """The same, on the loop."""
    try:
        async with job.transaction() as connection:
            await connection.copy_records_to_table(
                "notes", schema_name=table.split(".")[0], records=[(job.id,)]
            )
            job.result = job.attempt
            if job.attempt == 1:
                (Path(folder) / "begun").touch()
                while not (Path(folder) / "go").exists():  # noqa: ASYNC110 - other executors have only files
                    await asyncio.sleep(0.01)
    except holdfast.LeaseLost as error:
        (Path(folder) / "came").write_text(f"LeaseLost: {error}")
        raise


def tell(job: holdfast.Job, statement: str) -> None:
    """Complete with the one value that a statement gives."""
    with job.transaction() as connection:
        job.result = connection.execute(statement.encode()).fetchone()[0]


async def tell_on_loop(job: holdfast.Job, statement: str) -> None:
    """The same, on the loop."""
    async with job.transaction() as connection:
        job.result = await connection.fetchval(statement)


def checkpoint(job: holdfast.Job) -> Any:
    """Go on from a checkpoint; the third try finds it deleted."""
    state = job.load_checkpoint(version=2)
    if state is None:
        job.save_checkpoint({"page": 7, "text": "über\n"}, version=2)
        return holdfast.Snooze(0.01)
    if job.attempt == 2:
        return holdfast.Retry(0.01, f"seen {state['page']}")
    job.delete_checkpoint()
    return [state, job.load_checkpoint(version=2)]


async def checkpoint_on_loop(job: holdfast.Job) -> Any:
    """The same, on the loop."""
    state = await job.load_checkpoint(version=2)
    if state is None:
        await job.save_checkpoint({"page": 7, "text": "über\n"}, version=2)
        return holdfast.Snooze(0.01)
    if job.attempt == 2:
        return holdfast.Retry(0.01, f"seen {state['page']}")
    await job.delete_checkpoint()
    return [state, await job.load_checkpoint(version=2)]


def old_checkpoint(job: holdfast.Job) -> None:
    """Meet a checkpoint that a newer handler saved."""
    job.save_checkpoint([1], version=9)
    job.load_checkpoint(version=1)


async def old_checkpoint_on_loop(job: holdfast.Job) -> None:
    """The same, on the loop."""
    await job.save_checkpoint([1], version=9)
    await job.load_checkpoint(version=1)


def bad_checkpoint(job: holdfast.Job) -> None:
    """Try to save what is no data."""
    job.save_checkpoint(object())


async def bad_checkpoint_on_loop(job: holdfast.Job) -> None:
    """The same, on the loop."""
    await job.save_checkpoint(object())


def large_checkpoint(job: holdfast.Job) -> None:
    """Try to save more than may be kept."""
    job.save_checkpoint("x" * 1_100_000)


async def large_checkpoint_on_loop(job: holdfast.Job) -> None:
    """The same, on the loop."""
    await job.save_checkpoint("x" * 1_100_000)


def progress(job: holdfast.Job, folder: str) -> None:
    """Say how far it is, then wait for the word."""
    job.progress(0.25, "a quarter")
    job.progress(0.5, "half \x00")
    job.log.info("said so")
    while not (Path(folder) / "go").exists():
        time.sleep(0.01)


async def progress_on_loop(job: holdfast.Job, folder: str) -> None:
    """The same, on the loop."""
    job.progress(0.25, "a quarter")
    job.progress(0.5, "half \x00")
    job.log.info("said so")
    while not (Path(folder) / "go").exists():  # noqa: ASYNC110 - other executors have only files
        await asyncio.sleep(0.01)


def write_logs(job: holdfast.Job) -> None:
    """Write to both logs."""
    job.log.info("through the job: %d", job.attempt)
    logging.getLogger("tests.elsewhere").warning("through logging: \x00 ü")
    job.log.debug("too quiet to keep")


def log_badly(job: holdfast.Job) -> str:
    """Make a log call that cannot be formatted, then a good one."""
    job.log.info("%d", "no number")
    job.log.info("after it")
    return "done"


def log_and_retry(job: holdfast.Job) -> Any:
    """Write two lines and ask for another try, once."""
    job.log.info("attempt %d", job.attempt)
    job.log.info("more")
    return holdfast.Retry(0.01) if job.attempt == 1 else None


def write_much(job: holdfast.Job) -> None:
    """Write more than 1 MiB."""
    for n in range(1100):
        job.log.info("%05d %s", n, "x" * 994)


def die(how: str) -> None:
    """End the whole process."""
    if how == "exit":
        os._exit(7)
    os.kill(os.getpid(), signal.SIGSEGV if how == "segfault" else signal.SIGKILL)


def die_once(job: holdfast.Job) -> int:
    """End the whole process the first time."""
    if job.failures == 0:
        os._exit(7)
    return job.failures


def leave_a_child(path: str) -> None:
    """Start a program, then work without end."""
    child = subprocess.Popen(["sleep", "600"])
    Path(path).write_text(str(child.pid))
    child.wait()


def show(path: str) -> dict[str, Any]:
    """Tell what a program that the handler starts can see."""
    seen = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
    line = Path(f"/proc/{os.getpid()}/cmdline").read_bytes().decode().replace("\0", " ")
    return {"environment": seen, "command": line, "main": sys.modules["__main__"].__name__, "path": path}


def main_thread() -> bool:
    """Tell whether the handler runs on the main thread."""
    return threading.current_thread() is threading.main_thread()


def ignore_signals() -> str:
    """Send itself what a terminal or an operator sends."""
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    return "still here"


_met: list[str] = []
_next_call = threading.Event()
_left: list[threading.Thread] = []
_pool = ThreadPoolExecutor(1)


def leave_a_thread(job: holdfast.Job) -> None:
    """Start a thread that goes on when the next handler has begun, and still has a job to speak of."""

    def speak() -> None:
        _next_call.wait(30)
        job.progress(0.9, "late")
        job.log.warning("late")
        wishes = (lambda: job.save_checkpoint({"owner": job.id}), lambda: _transact(job))
        _met.extend(_came_of(wish) for wish in wishes)

    _pool.submit(job.log.info, "first").result()
    _left.append(threading.Thread(target=speak, daemon=True))
    _left[0].start()


def _transact(job: holdfast.Job) -> None:
    with job.transaction() as connection:
        connection.execute("select 1")


def meet_a_thread(job: holdfast.Job) -> Any:
    """Let that thread speak; answers what it met, and what it left behind here."""
    own = threading.Thread(target=job.log.info, args=("mine",))
    own.start()
    own.join(30)
    _pool.submit(job.log.info, "mine as well").result()
    _next_call.set()
    _left[0].join(30)
    return [*_met, job.load_checkpoint()]
