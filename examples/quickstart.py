"""A job, its handler, and the program that waits for its result.

    holdfast up --app examples.quickstart:app     # one terminal: database, worker, maintenance
    python -m examples.quickstart                 # another, with HOLDFAST_DATABASE_URL as `up` printed it

It prints:
    Hello, Ada!
"""

import asyncio
import os

import holdfast

app = holdfast.App()


@app.job(max_attempts=5, timeout=60)
async def greet(name: str) -> str:
    return f"Hello, {name}!"


async def main() -> None:
    async with holdfast.Client(os.environ["HOLDFAST_DATABASE_URL"]) as client:
        handle = await client.enqueue(greet.job(name="Ada"))
        print(await client.wait(handle.id, timeout=30))


if __name__ == "__main__":
    asyncio.run(main())
