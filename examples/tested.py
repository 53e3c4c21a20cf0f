"""How an application tests its jobs: `pytest examples/tested.py` needs nothing but holdfast[embedded]."""

from datetime import timedelta

import holdfast
from holdfast.testing import Clock, InlineClient, ThrowawayDatabase, drain

app = holdfast.App()


@app.job(max_attempts=2, retry=holdfast.Constant(timedelta(minutes=10)))
async def charge(cents: int) -> str:
    if cents < 0:
        raise ValueError("nothing to charge")
    return f"charged {cents}"


async def test_a_bad_charge_fails_after_two_attempts(holdfast_db: ThrowawayDatabase) -> None:
    """Real store, real retries; ten minutes pass at once."""
    async with holdfast.Client(holdfast_db.dsn, schema=holdfast_db.schema) as client:
        await client.enqueue(charge.job(cents=-1))
    report = await drain(app, holdfast_db, include_scheduled=True)
    assert report.counts == {"retried": 1, "failed": 1}


async def test_a_late_charge_waits_for_its_hour(holdfast_db: ThrowawayDatabase) -> None:
    """The test moves the clock of its own schema."""
    async with holdfast.Client(holdfast_db.dsn, schema=holdfast_db.schema) as client:
        await client.enqueue(charge.job(cents=5), delay=timedelta(hours=1))
    assert (await drain(app, holdfast_db)).counts == {}
    await Clock(holdfast_db).advance(timedelta(hours=1))
    assert [one.result for one in (await drain(app, holdfast_db)).of(charge)] == ["charged 5"]


async def test_without_a_database() -> None:
    """Inline mode runs the handler inside enqueue."""
    client = InlineClient(app)
    handle = await client.enqueue(charge.job(cents=7), priority=0)
    assert await client.wait(handle.id) == "charged 7"
