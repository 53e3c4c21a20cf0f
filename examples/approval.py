"""An order that is charged, packed, approved by somebody and shipped, or refunded if it is refused.

While it waits for the approval it holds no slot, no lease and no memory of any process.

    holdfast up --app examples.approval:app     # one terminal, at the top of the clone: database and worker
    python -m examples.approval                 # another, with HOLDFAST_DATABASE_URL as `up` printed it

It prints:
    order 7, approved by ada: parcel of 2 with label 7 is on its way
    order 8: Refused: bob, and 30 were paid back
"""

import asyncio
import os
from datetime import timedelta

import holdfast

app = holdfast.App()
bank: dict[str, int] = {}  # stands for one that takes a charge under the same key once


@app.error
class Refused(Exception):
    """Somebody does not want this order."""


async def charge(items: int, key: str) -> int:
    return bank.setdefault(key, 10 * items)


async def refund(amount: int) -> str:
    return f"{amount} were paid back"


async def pack(items: int) -> str:
    return f"parcel of {items}"


async def print_label(order_id: int) -> str:
    return f"label {order_id}"


@app.job(queue="parcels")
async def ship(parcel: str, label: str) -> str:
    return f"{parcel} with {label} is on its way"


@app.workflow(queue="orders")
async def fulfil(run: holdfast.Run, order_id: int, items: int) -> str:
    amount = await run.step(charge, items, str(run.uuid()), max_attempts=5, timeout=30)
    run.on_failure(refund, amount)
    async with run.branches() as branches:
        parcel = branches.start("pack", run.step(pack, items))
        label = branches.start("label", run.step(print_label, order_id))
    approval = await run.wait_signal("approval", timeout=timedelta(days=3))
    if not approval["ok"]:
        raise Refused(approval["by"])
    await run.sleep(timedelta(milliseconds=100))
    shipped: str = await run.child(ship.job(parcel.result(), label.result()))
    return f"order {order_id}, approved by {approval['by']}: {shipped}"


async def main() -> None:
    async with holdfast.Client(os.environ["HOLDFAST_DATABASE_URL"]) as client:
        good = await client.enqueue(fulfil.job(order_id=7, items=2))
        bad = await client.enqueue(fulfil.job(order_id=8, items=3))
        await client.signal(good.id, "approval", {"ok": True, "by": "ada"}, key="order 7")
        await client.signal(bad.id, "approval", {"ok": False, "by": "bob"}, key="order 8")
        print(await client.wait(good.id, timeout=30))
        try:
            await client.wait(bad.id, timeout=30)
        except holdfast.JobFailed as failed:
            made_up = (await client.history(bad.id))[-1]
            print(f"order 8: {failed.error}, and {made_up.result}")


if __name__ == "__main__":
    asyncio.run(main())
