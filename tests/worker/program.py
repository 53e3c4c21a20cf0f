"""A worker in a process of its own, for tests that kill it."""

import asyncio
import os
from pathlib import Path

import holdfast
from holdfast.cli.wiring import WorkerProcess
from holdfast.store.database import DatabaseConfig
from holdfast.worker.config import WorkerConfig

app = holdfast.App()


@app.job(executor="process")
def pid() -> int:
    """Give the process in which the handler runs."""
    return os.getpid()


@app.job(executor="process")
def spin(path: str) -> None:
    """Say that it has begun, then keep the interpreter busy without end."""
    Path(path).touch()
    while True:
        pass


async def work(dsn: str, schema: str) -> None:
    """Work until killed."""
    config = WorkerConfig(database=DatabaseConfig(dsn=dsn, schema=schema), queues=("default",))
    await WorkerProcess(app, config).start()
    await asyncio.Event().wait()
