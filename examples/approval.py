"""A run that charges a card, waits for an approval without holding anything, and ships.

It prints:
    order 7: charged, approved by ada, shipped
"""

import asyncio
import os
from datetime import timedelta

import holdfast

app = holdfast.App()


async def charge(order_id: int) -> str:
    return f"order {order_id}: charged"


@app.job
async def ship(order_id: int) -> str:
    return "shipped"


@app.workflow
async def fulfil(run: holdfast.Run, order_id: int) -> str:
    charged = await run.step(charge, order_id, max_attempts=5, timeout=30)
    approval = await run.wait_signal("approved", timeout=timedelta(days=3))
    return f"{charged}, approved by {approval['by']}, {await run.child(ship.job(order_id))}"


async def main() -> None:
    async with holdfast.Client(os.environ["HOLDFAST_DATABASE_URL"]) as client:
        handle = await client.enqueue(fulfil.job(order_id=7))
        await client.signal(handle.id, "approved", {"by": "ada"}, key="order 7")
        print(await client.wait(handle.id, timeout=30))


if __name__ == "__main__":
    asyncio.run(main())
