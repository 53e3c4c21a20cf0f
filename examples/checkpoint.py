"""A handler that goes on where the last attempt stopped.

It prints:
    attempt 1 imported 1000 rows, attempt 2 imported 1000 rows
"""

import asyncio
import os
from datetime import timedelta

import holdfast

app = holdfast.App()


@app.job(retry=holdfast.Constant(timedelta(milliseconds=10)))
async def import_rows(job: holdfast.Job, batches: int) -> str:
    done: list[str] = await job.load_checkpoint() or []
    while len(done) < batches:
        done.append(f"attempt {job.attempt} imported 1000 rows")
        await job.save_checkpoint(done)
        if job.attempt == 1:
            raise ConnectionError("the source went away")
    return ", ".join(done)


async def main() -> None:
    async with holdfast.Client(os.environ["HOLDFAST_DATABASE_URL"]) as client:
        handle = await client.enqueue(import_rows.job(batches=2))
        print(await client.wait(handle.id, timeout=30))


if __name__ == "__main__":
    asyncio.run(main())
