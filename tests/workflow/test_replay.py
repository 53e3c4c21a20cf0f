"""Replay: the same values, the same steps, and what becomes of code that was changed."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase


async def echo(what: Any) -> Any:
    """A step."""
    return what


async def test_values_are_the_same_at_every_replay(
    client: holdfast.Client, work: Any, app: holdfast.App, calls: list[str]
) -> None:
    """Times, random numbers and UUIDs do not change when the run goes on; those of another run differ."""

    @app.workflow
    async def draw(run: holdfast.Run) -> list[Any]:
        values = [run.now().isoformat(), run.random(), str(run.uuid()), run.random()]
        calls.append(repr(values))
        await run.step(echo, 1)
        await run.wait_signal("go")
        return values

    await work(app)
    handles = await client.enqueue_many([draw.job(), draw.job()])
    results = []
    for handle in handles:
        await client.signal(handle.id, "go")
        results.append(await client.wait(handle.id, timeout=20))
    assert set(calls) == {repr(values) for values in results}
    assert not set(results[0]) & set(results[1])


async def test_changed_code_keeps_the_run_until_it_is_mended(
    client: holdfast.Client, work: Any, rests: Any
) -> None:
    """It names what was recorded and what is asked for; a resume goes on with mended code."""

    def version(step_name: str) -> holdfast.App:
        app = holdfast.App()

        @app.workflow
        async def plan(run: holdfast.Run) -> list[Any]:
            first = await run.step(echo, 1, name=step_name)
            return [first, await run.wait_signal("go")]

        return app

    first = await work(version("one"))
    handle = await client.enqueue(version("one").request("plan", {}))
    await rests(handle.id)
    await first.stop(0.0)
    second = await work(version("two"))
    await client.signal(handle.id, "go", "kept")
    reason = await rests(handle.id)
    assert "NonDeterministicRun" in reason
    assert "recorded step 'one' at place 0 of branch 'main', its code now asks for step 'two'" in reason
    assert (await client.job(handle.id)).failures == 0
    await second.stop(0.0)
    await work(version("one"))
    await client.resume(handle.id)
    assert await client.wait(handle.id, timeout=20) == [1, "kept"]


async def test_code_that_ends_before_its_record_does_keeps_the_run(
    client: holdfast.Client, work: Any, rests: Any
) -> None:
    """Steps that were taken out are noticed, and so is an error on the way to what was recorded."""

    def version(*, whole: bool) -> holdfast.App:
        app = holdfast.App()

        @app.workflow
        async def plan(run: holdfast.Run) -> str:
            if whole:
                await run.step(echo, 1)
                await run.wait_signal("go")
            return "end"

        return app

    first = await work(version(whole=True))
    handle = await client.enqueue(version(whole=True).request("plan", {}))
    await rests(handle.id)
    await first.stop(0.0)
    await work(version(whole=False))
    await client.signal(handle.id, "go")
    assert "asks for nothing more" in await rests(handle.id)


async def test_a_patch_is_taken_by_runs_that_come_to_it_first(
    client: holdfast.Client, work: Any, rests: Any
) -> None:
    """One that has gone on from there takes the old way; a new one takes the new way, at each replay."""

    def version(*, patched: bool) -> holdfast.App:
        app = holdfast.App()

        @app.workflow
        async def plan(run: holdfast.Run) -> list[Any]:
            way = "old"
            if patched and run.patched("check first"):
                way = await run.step(echo, "new", name="check")
            await run.step(echo, 1)
            await run.wait_signal("go")
            return [way, await run.step(echo, 2)]

        return app

    first = await work(version(patched=False))
    old = await client.enqueue(version(patched=False).request("plan", {}))
    await rests(old.id)
    await first.stop(0.0)
    await work(version(patched=True))
    new = await client.enqueue(version(patched=True).request("plan", {}))
    await rests(new.id)
    for handle, way in ((old, "old"), (new, "new")):
        await client.signal(handle.id, "go")
        assert await client.wait(handle.id, timeout=20) == [way, 2]


async def test_a_run_is_claimed_only_where_its_version_is_known(
    client: holdfast.Client, work: Any, db: ThrowawayDatabase
) -> None:
    """The version is part of the kind; ``also`` lists those that newer code can go on with."""

    def version(name: str, *also: str) -> holdfast.App:
        app = holdfast.App()

        @app.workflow(version=name, also=also)
        async def plan(run: holdfast.Run) -> str:
            return f"{run.kind} by {name}"

        return app

    await work(version("2"))
    new = await client.enqueue(version("2").handlers["plan@2"].job())
    old = await client.enqueue(version("1").handlers["plan@1"].job())
    assert await client.wait(new.id, timeout=20) == "plan@2 by 2"
    assert await db.value("select state from holdfast.live_jobs where job_id = $1", old.id) == "available"
    await work(version("3", "1", "2"))
    assert await client.wait(old.id, timeout=20) == "plan@1 by 3"


def test_a_workflow_is_an_async_function_with_a_run(app: holdfast.App) -> None:
    """What cannot be a workflow is refused where it is registered."""

    def plain(run: holdfast.Run) -> None: ...

    async def empty() -> None: ...

    async def forgotten(amount: int) -> None: ...

    async def bare(run, amount: int) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(holdfast.InputInvalid, match="'plain' is no `async def`"):
        app.workflow(plain)  # type: ignore[arg-type]
    with pytest.raises(holdfast.InputInvalid, match="'empty' takes no parameter"):
        app.workflow(empty)  # type: ignore[arg-type]
    with pytest.raises(holdfast.InputInvalid, match="'forgotten' takes 'amount' first"):
        app.workflow(forgotten)
    app.workflow(bare)
    with pytest.raises(holdfast.OptionInvalid, match="version is 'a@b'"):
        app.workflow(version="a@b")(plain)  # type: ignore[arg-type]


def test_the_arguments_of_a_run_are_checked_like_those_of_a_job(app: holdfast.App) -> None:
    """The run itself is none of them."""

    @app.workflow
    async def plan(run: holdfast.Run, n: int) -> None: ...

    assert plan.job(n=1).args == '{"n":1}'
    assert plan.job(2).is_run
    with pytest.raises(holdfast.ArgumentsInvalid, match="arguments of 'plan' are wrong"):
        plan.job(n="x")
