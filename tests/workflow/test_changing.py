"""What docs/guides/changing-workflows.md says of changes: which a run does not notice, and the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import holdfast
from holdfast.testing import Clock, ThrowawayDatabase, drain

Code = Callable[[holdfast.Run], Awaitable[Any]]


async def charge(items: int = 2) -> int:
    """A step."""
    return 10 * items


async def charge_card(items: int = 3) -> str:
    """The same step after a release: another name, another inside, another type."""
    return f"{items} items"


async def echo(what: str) -> str:
    """A third step."""
    return what


async def pack() -> str:
    """Another step."""
    return "parcel"


async def released(run: holdfast.Run) -> Any:
    """What was deployed first."""
    paid = await run.step(charge)
    await run.step(pack)
    return paid, await run.wait_signal("go")


async def behind(run: holdfast.Run) -> Any:
    """More happens behind the wait."""
    await released(run)
    return await run.step(pack, name="pack again")


async def another_inside(run: holdfast.Run) -> Any:
    """The function has another name and another type, the step has not; it is tried in another way."""
    paid = await run.step(charge_card, name="charge", max_attempts=9, timeout=5)
    await run.step(pack)
    return paid, await run.wait_signal("go", timeout=3600)


async def anew(run: holdfast.Run) -> Any:
    """It begins anew before all of its record is met."""
    await run.step(charge)
    run.continue_as_new()


async def patched(run: holdfast.Run) -> Any:
    """A step is added before what was recorded, for runs that come there first."""
    if run.patched("check"):
        await run.step(pack, name="check")
    return await released(run)


async def marked(run: holdfast.Run) -> Any:
    """A patch is passed that changes nothing yet."""
    run.patched("nothing yet")
    return await released(run)


async def inserted(run: holdfast.Run) -> Any:
    """A step is added in front."""
    await run.step(pack, name="check")
    return await released(run)


async def removed(run: holdfast.Run) -> Any:
    """A step is gone."""
    return await run.step(charge), await run.wait_signal("go")


async def reordered(run: holdfast.Run) -> Any:
    """The steps have changed places."""
    await run.step(pack)
    return await run.step(charge), await run.wait_signal("go")


async def branched(run: holdfast.Run) -> Any:
    """The wait is in a branch, which takes no place of its parent."""
    async with run.branches() as branches:
        branches.start("goods", released(run))


async def patched_before_branches(run: holdfast.Run) -> Any:
    """A step is added in front of the branch."""
    if run.patched("check"):
        await run.step(pack, name="check")
    await branched(run)


async def patched_behind_branches(run: holdfast.Run) -> Any:
    """A step is added behind the branch."""
    await branched(run)
    if run.patched("check"):
        await run.step(pack, name="check")


async def patched_twice(run: holdfast.Run) -> Any:
    """Two changes, one after the other, before anything else."""
    if not run.patched("no weighing"):
        await run.step(pack, name="weigh")
    await patched(run)


async def instead(run: holdfast.Run) -> Any:
    """It no longer waits for the signal, which has no timeout and so no record before it comes."""
    return await run.step(charge), await run.step(pack), await run.step(pack, name="go on")


def release(code: Code) -> holdfast.App:
    """An application whose workflow `plan` is *code*."""
    app = holdfast.App()

    @app.workflow
    async def plan(run: holdfast.Run) -> Any:
        return await code(run)

    return app


async def deployed(db: ThrowawayDatabase, old: Code, new: Code) -> str:
    """Play a run with *old* until it waits, then go on with *new*; answers where it stands."""
    async with holdfast.Client(db.dsn, schema=db.schema) as client:
        run = await client.enqueue(release(old).request("plan", {}))
        await drain(release(old), db)
        await client.signal(run.id, "go")
        await drain(release(new), db)
        return str((await client.job(run.id)).state)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (released, behind),
        (released, another_inside),
        (released, patched),
        (released, instead),
        (marked, released),
        (patched, patched),
        (patched_twice, patched),
    ],
)
async def test_a_run_does_not_notice_these_changes(db: ThrowawayDatabase, old: Code, new: Code) -> None:
    """It ends with the new code as if nothing had happened."""
    assert await deployed(db, old, new) == "completed"


@pytest.mark.parametrize(
    ("old", "new", "checks"),
    [
        (released, patched, 0),
        (patched_twice, patched, 1),
        (branched, patched_before_branches, 0),
        (branched, patched_behind_branches, 1),
    ],
)
async def test_a_patch_is_for_runs_that_come_there_first(
    db: ThrowawayDatabase, old: Code, new: Code, checks: int
) -> None:
    """Also where what was recorded is in a branch, or stands behind the mark of another patch."""
    assert await deployed(db, old, new) == "completed"
    assert (
        await db.value("select count(*) from holdfast.steps where name = 'check' and kind = 'step'") == checks
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (released, inserted),
        (released, removed),
        (released, reordered),
        (released, anew),
        (patched, released),
    ],
)
async def test_a_run_is_kept_where_the_code_does_not_fit(
    db: ThrowawayDatabase, client: holdfast.Client, old: Code, new: Code
) -> None:
    """It neither fails nor goes on; mended code finds its signal when it is resumed."""
    assert await deployed(db, old, new) == "waiting"
    reason = await db.value("select reason from holdfast.suspensions")
    assert reason.startswith("NonDeterministicRun")
    run_id = await db.value("select job_id from holdfast.live_jobs")
    await client.resume(run_id)
    await drain(release(old), db)
    assert (await client.job(run_id)).state == "completed"


async def test_a_version_goes_on_with_older_ones_if_it_says_so(
    db: ThrowawayDatabase, client: holdfast.Client
) -> None:
    """Runs of a version that nobody knows are left alone; with also= they go on, as do those without one."""

    def versioned(version: str | None = None, also: tuple[str, ...] = ()) -> holdfast.App:
        app = holdfast.App()

        @app.workflow(version=version, also=also)
        async def plan(run: holdfast.Run) -> Any:
            return await released(run)

        return app

    none = await client.enqueue(versioned().request("plan", {}))
    one = await client.enqueue(versioned(version="1").request("plan@1", {}))
    for handle in (none, one):
        await client.signal(handle.id, "go")
    assert (await drain(versioned(version="2"), db)).counts == {}
    assert (await drain(versioned(version="2", also=("", "1")), db)).counts["completed"] == 2


async def test_a_parameter_with_a_default_may_be_added(
    db: ThrowawayDatabase, client: holdfast.Client
) -> None:
    """Runs that were enqueued before have it."""
    app = holdfast.App()

    @app.workflow
    async def plan(run: holdfast.Run, note: str = "as ever") -> str:
        return await run.step(echo, note)

    run = await client.enqueue(release(released).request("plan", {}))
    await drain(app, db)
    assert await client.wait(run.id, timeout=5) == "as ever"


async def test_who_sleeps_wakes_when_it_was_meant_to(db: ThrowawayDatabase, client: holdfast.Client) -> None:
    """A sleep that was made longer is longer for those who have not begun it."""

    async def short(run: holdfast.Run) -> None:
        await run.sleep(60)

    async def long(run: holdfast.Run) -> None:
        await run.sleep(3600)

    asleep = await client.enqueue(release(short).request("plan", {}))
    await drain(release(short), db)
    await Clock(db).advance(61)
    fresh = await client.enqueue(release(long).request("plan", {}))
    await db.fetch("select holdfast.revive_runs(array[$1::bigint])", asleep.id)
    await drain(release(long), db)
    assert (await client.job(asleep.id)).state == "completed"
    assert (await client.job(fresh.id)).state == "waiting"


async def test_a_new_version_of_a_child_leaves_its_parents_alone(
    db: ThrowawayDatabase, client: holdfast.Client
) -> None:
    """The child that runs keeps its version; a job that was enqueued is met again as well."""

    def deployed_with(version: str, also: tuple[str, ...] = ()) -> holdfast.App:
        app = holdfast.App()

        @app.workflow(version=version, also=also)
        async def ship(run: holdfast.Run) -> str:
            return str(await run.wait_signal("go"))

        @app.workflow
        async def order(run: holdfast.Run) -> Any:
            run.enqueue(ship.job())
            return await run.child(ship.job())

        return app

    first = deployed_with("1")
    order = await client.enqueue(first.request("order", {}))
    await drain(first, db)
    for child in await db.fetch("select job_id from holdfast.live_jobs where kind = 'ship@1'"):
        await client.signal(child[0], "go", "shipped")
    await drain(deployed_with("2", also=("1",)), db)
    assert (await client.job(order.id)).result == "shipped"
