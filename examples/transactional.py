"""A job that exists if and only if the caller's own transaction commits.

It prints:
    jobs after the rollback: 0
    order 2 shipped
"""

import asyncio
import os

import asyncpg

import holdfast

app = holdfast.App()


@app.job
async def ship(order_id: int) -> str:
    return f"order {order_id} shipped"


async def main() -> None:
    dsn = os.environ["HOLDFAST_DATABASE_URL"]
    own = await asyncpg.connect(dsn)
    async with holdfast.Client(dsn) as client:
        transaction = own.transaction()
        await transaction.start()
        await client.enqueue(ship.job(order_id=1), connection=own)
        await transaction.rollback()
        print("jobs after the rollback:", await own.fetchval("select count(*) from holdfast.jobs"))
        async with own.transaction():
            handle = await client.enqueue(ship.job(order_id=2), connection=own)
        print(await client.wait(handle.id, timeout=30))
    await own.close()


if __name__ == "__main__":
    asyncio.run(main())
