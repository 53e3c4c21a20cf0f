"""Middleware surrounds every handler; the first one registered is the outermost.

It prints:
    attempt 1 of add answered 5
"""

import asyncio
import os
from collections.abc import Awaitable, Callable

import holdfast

app = holdfast.App()


@app.middleware
async def stamped(job: holdfast.Job, call: Callable[[], Awaitable[object]]) -> object:
    answer = await call()  # errors, Snooze and the like pass through here as well
    return f"attempt {job.attempt} of {job.kind} answered {answer}"


@app.job
def add(a: int, b: int) -> int:
    return a + b


async def main() -> None:
    async with holdfast.Client(os.environ["HOLDFAST_DATABASE_URL"]) as client:
        handle = await client.enqueue(add.job(2, 3))
        print(await client.wait(handle.id, timeout=30))


if __name__ == "__main__":
    asyncio.run(main())
