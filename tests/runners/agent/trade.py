"""An application whose kinds a runner runs."""

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import holdfast

app = holdfast.App()
# Nothing of it writes a log.
silent = holdfast.App()


@app.job
async def add(a: int, b: int) -> int:
    """Add on the loop."""
    await asyncio.sleep(0)
    return a + b


@app.job
def shout(job: holdfast.Job, text: str) -> str:
    """Say how far it is, write to both streams, and shout."""
    job.progress(0.5, "half way")
    print("to stdout")
    job.log.info("to the log")
    return text.upper()


@app.job
def look_around() -> dict[str, str]:
    """Read the environment."""
    return dict(os.environ)


@app.job(max_attempts=1)
def stumble() -> None:
    """Raise."""
    msg = "a stone"
    raise ValueError(msg)


@app.job(max_attempts=3, retry=holdfast.Constant(timedelta(0)))
def persist(job: holdfast.Job) -> int:
    """Succeed at the third attempt."""
    if job.attempt < 3:
        msg = "not yet"
        raise ValueError(msg)
    return job.attempt


@app.job(retry=holdfast.Constant(timedelta(days=2)))
def falter(job: holdfast.Job, way: str) -> str:
    """Fail at the first attempt, in one of the ways there are."""
    if job.attempt == 1:
        match way:
            case "raise":
                msg = "not today"
                raise ValueError(msg)
            case "die":
                os._exit(7)
            case "wait":
                time.sleep(100)
    return "done"


@app.job
def decline() -> holdfast.Cancel:
    """Want no more of it."""
    return holdfast.Cancel("nothing to do")


@app.job
def give_up() -> None:
    """Raise for good."""
    raise holdfast.Poison("never")


@app.job(max_attempts=1)
def reach_out(job: holdfast.Job) -> None:
    """Ask for the database."""
    job.save_checkpoint({"at": 1})


@app.job
def snooze() -> holdfast.Snooze:
    """Rest for an hour."""
    return holdfast.Snooze(3600, "later")


@app.job
def hibernate() -> holdfast.Snooze:
    """Rest for longer than a year."""
    return holdfast.Snooze(timedelta(days=400), "winter")


@app.job
async def linger() -> str:
    """Wait until somebody cancels it, and tidy up then."""
    print("lingering", flush=True)
    try:
        await asyncio.sleep(100)
    finally:
        print("tidied", flush=True)
    return "never"


@app.job
async def conclude() -> str:
    """Wait until somebody stops it, and have done enough then."""
    print("waiting", flush=True)
    try:
        await asyncio.sleep(100)
    except asyncio.CancelledError:
        return "enough"
    return "all"


@app.job
def despair() -> None:
    """Wait until somebody stops it, and never want to be begun again then."""
    print("waiting", flush=True)
    try:
        time.sleep(100)
    except KeyboardInterrupt:
        msg = "no more"
        raise holdfast.Poison(msg) from None


@app.job
def brood() -> None:
    """Wait on the main thread."""
    print("brooding", flush=True)
    time.sleep(100)


@app.middleware
async def around(job: holdfast.Job, call: Any) -> Any:
    """Say that every handler is surrounded."""
    print(f"before {job.kind}", flush=True)
    return await call()


@silent.job
def fill(size: int, gate: str) -> str:
    """Return so many letters, once there is a file."""
    while not Path(gate).exists():
        time.sleep(0.05)
    return "x" * size
