"""What is too large or of no use to JSON: refused by name, at once, and never half kept."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase

MIB = 1024 * 1024


async def size(text: str) -> int:
    """A step that takes whatever it is given."""
    return len(text)


async def test_arguments_of_a_run_are_limited_at_its_enqueue(
    client: holdfast.Client, app: holdfast.App
) -> None:
    """10 MB never reach the database."""

    @app.workflow
    async def plan(run: holdfast.Run, text: str) -> None: ...

    with pytest.raises(
        holdfast.PayloadTooLarge, match=r"arguments of 'plan': 10,485,7\d\d bytes where 1,048,576"
    ):
        await client.enqueue(plan.job(text="x" * 10 * MIB))
    with pytest.raises(holdfast.ArgumentsInvalid, match="NUL"):
        plan.job(text="a\x00b")


async def test_arguments_of_a_step_may_be_of_any_size(
    client: holdfast.Client, work: Any, app: holdfast.App, db: ThrowawayDatabase
) -> None:
    """They are not remembered; the log of calls says how much it leaves out."""

    @app.workflow
    async def plan(run: holdfast.Run) -> int:
        return await run.step(size, "x" * 10 * MIB)

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == 10 * MIB
    (line,) = await client.activities(handle.id)
    assert line.parameters["left_out_bytes"] > 10 * MIB
    assert await db.value("select max(pg_column_size(a)) from holdfast.activities a") < 1000


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (object(), "a value of type object cannot be turned into JSON"),
        ("a\x00b", "NUL character"),
        (float("inf"), "number inf"),
        ("\ud800", "surrogate"),
        ("x" * 2 * MIB, "2,097,154 bytes where 1,048,576 are allowed"),
    ],
    ids=["object", "NUL", "inf", "surrogate", "large"],
)
@pytest.mark.parametrize("where", ["step", "transaction", "run", "blob"])
async def test_what_cannot_be_kept_is_an_error_that_is_not_tried_again(
    client: holdfast.Client, work: Any, app: holdfast.App, where: str, value: Any, problem: str
) -> None:
    """Whether a step returns it, in a transaction or not, or the run itself; a blob may be larger."""

    async def give(*_: Any) -> Any:
        return value

    @app.workflow
    async def plan(run: holdfast.Run) -> Any:
        match where:
            case "step":
                await run.step(give, max_attempts=5)
            case "transaction":
                await run.step(give, transaction=True, max_attempts=5)
            case "blob":
                await run.blob(give, max_attempts=5)
                return None
        return value

    await work(app)
    handle = await client.enqueue(plan.job())
    if where == "blob" and problem.startswith("2,"):
        await client.wait(handle.id, timeout=20)
        return
    with pytest.raises(holdfast.JobFailed, match=problem):
        await client.wait(handle.id, timeout=20)
    assert (await client.job(handle.id)).attempt == 1
    assert len(await client.activities(handle.id)) == (0 if where == "run" else 1)


async def test_what_an_error_of_a_step_says_is_cut_where_it_is_endless(
    client: holdfast.Client, work: Any, app: holdfast.App
) -> None:
    """So are its arguments; a NUL in it hurts nobody, and it is caught as what it is."""

    async def fail(text: str) -> None:
        raise ValueError(text)

    @app.workflow
    async def plan(run: holdfast.Run) -> list[str]:
        met = []
        for text in ("x" * 5 * MIB, "a\x00b"):
            try:
                await run.step(fail, text)
            except (ValueError, holdfast.StepFailed) as error:
                met.append(f"{type(error).__name__} {len(str(error)) < 50_000}")
        return met

    await work(app)
    handle = await client.enqueue(plan.job())
    assert await client.wait(handle.id, timeout=20) == ["StepFailed True"] * 2


async def test_a_blob_goes_with_the_memory_of_its_run(
    client: holdfast.Client, work: Any, app: holdfast.App, db: ThrowawayDatabase
) -> None:
    """A run that begins anew starts without; reading one that is gone is an error by name."""

    async def picture() -> bytes:
        return b"x" * MIB

    @app.workflow
    async def plan(run: holdfast.Run, old: int | None) -> str:
        if old is None:
            kept = await run.blob(picture)
            run.continue_as_new(kept.id)
        try:
            await run.read(holdfast.Blob(old, 1, True))
        except holdfast.BlobNotFound as error:
            return str(error)
        return "not reached"

    await work(app)
    handle = await client.enqueue(plan.job(None))
    assert "does not exist" in await client.wait(handle.id, timeout=20)
    assert await db.value("select count(*) from holdfast.blobs") == 0
