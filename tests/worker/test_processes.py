"""CPU handlers in child processes: kept warm, killed hard, and never a danger to the worker."""

import os
from typing import Any

import holdfast
from tests.worker import handlers


def app_of(*functions: Any, **options: Any) -> holdfast.App:
    """An app that runs these functions in processes, each under its own name."""
    app = holdfast.App()
    for function in functions:
        app.job(kind=function.__name__, executor="process", retry=handlers.SOON, **options)(function)
    return app


async def test_a_child_is_not_the_worker_and_is_kept_for_the_next_job(
    client: holdfast.Client, work: Any
) -> None:
    """Two jobs one after the other run in one and the same child."""
    app = app_of(handlers.pid)
    await work(app, slots=2)
    first, second = [
        await client.wait((await client.enqueue(app.request("pid", {}))).id, timeout=20) for _ in range(2)
    ]
    assert first == second != os.getpid()
