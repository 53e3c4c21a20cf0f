"""Progress and log lines of a handler, for whoever looks while it runs.

It prints:
    half of it: 50%
    attempt 1, info: read 10 rows
"""

import asyncio
import os

import asyncpg

import holdfast

app = holdfast.App()
LINES = "select attempt, level, line from holdfast.job_logs where job_id = $1"


@app.job
async def convert(job: holdfast.Job) -> None:
    job.log.info("read %s rows", 10)
    job.progress(0.5, "half of it")
    await asyncio.sleep(2)


async def main() -> None:
    dsn = os.environ["HOLDFAST_DATABASE_URL"]
    async with holdfast.Client(dsn) as client, asyncpg.create_pool(dsn) as pool:
        handle = await client.enqueue(convert.job())
        while (seen := await client.job(handle.id)).progress is None:
            await asyncio.sleep(0.05)
        print(f"{seen.progress_note}: {seen.progress:.0%}")
        await client.wait(handle.id, timeout=30)
        for line in await pool.fetch(LINES, handle.id):
            print("attempt {}, {}: {}".format(*line))


if __name__ == "__main__":
    asyncio.run(main())
