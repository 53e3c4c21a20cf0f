"""A schedule makes a job at every tick; workers store what their application declares.

It prints:
    nightly  0 3 * * *  Europe/Berlin
    often has made a job
"""

import asyncio
import os
from datetime import timedelta

import asyncpg

import holdfast

app = holdfast.App()


@app.job
async def report(day: str = "yesterday") -> None: ...


app.schedule("nightly", report.job(), cron="0 3 * * *", timezone="Europe/Berlin", overlap="skip")
app.schedule("often", report.job(day="today"), every=timedelta(seconds=1), missed="skip")


async def main() -> None:
    connection = await asyncpg.connect(os.environ["HOLDFAST_DATABASE_URL"])
    while not await connection.fetchval("select count(last_job_id) from holdfast.schedules"):
        await asyncio.sleep(0.1)
    for row in await connection.fetch("select name, cron, timezone from holdfast.schedules where cron <> ''"):
        print(*row, sep="  ")
    print("often has made a job")
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main())
