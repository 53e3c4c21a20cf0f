"""A connection has nothing to learn before its first statement."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

import holdfast
from holdfast.store.incoming import COPY_FROM
from holdfast.testing import ThrowawayDatabase


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements for which asyncpg asked the server what their types are."""
    found: list[str] = []
    driver: Any = asyncpg.Connection
    prepare, look_up = driver._get_statement, driver._introspect_types
    asking: list[str] = []

    async def get_statement(self: Any, query: str, *args: Any, **options: Any) -> Any:
        asking.append(query.strip().partition("\n")[0])
        try:
            return await prepare(self, query, *args, **options)
        finally:
            asking.pop()

    async def introspect(self: Any, *args: Any) -> Any:
        found.extend(asking)
        return await look_up(self, *args)

    monkeypatch.setattr(driver, "_get_statement", get_statement)
    monkeypatch.setattr(driver, "_introspect_types", introspect)
    return found


async def test_neither_worker_nor_client_asks_what_types_are(
    work: Any, db: ThrowawayDatabase, eventually: Any, looked_up: list[str]
) -> None:
    """Each such question would cost milliseconds, on every connection, before the first claim or enqueue."""
    app, tries = holdfast.App(), 0

    @app.job
    async def stumble() -> str | holdfast.Retry:
        nonlocal tries
        tries += 1
        return holdfast.Retry(0.01, "once more") if tries == 1 else "done"

    @app.job
    async def echo(text: str) -> str:
        logging.getLogger("holdfast.job").info("echo of %s", text)
        return text

    @app.workflow
    async def look(run: holdfast.Run) -> list[str]:
        await run.step(step)
        heard = await run.wait_signal("word")
        return [heard, *await run.children([echo.job(text="a"), echo.job(text="b")])]

    async def step() -> None:
        await asyncio.sleep(0)

    await work(app)
    async with holdfast.Client(db.dsn, schema=db.schema) as client:
        first, *others = await client.enqueue_many([stumble.job(), echo.job(text="c"), echo.job(text="d")])
        await client.enqueue(echo.job(text="later"), delay=timedelta(hours=1))
        run = await client.enqueue(look.job())
        await client.signal(run.id, "word", "hi")
        assert await client.wait(first.id, timeout=20) == "done"
        assert [await client.wait(one.id, timeout=20) for one in others] == ["c", "d"]
        assert await client.wait(run.id, timeout=20) == ["hi", "a", "b"]
        poured = await client.enqueue_many([echo.job(text=str(n)) for n in range(COPY_FROM)])
        assert await client.wait(poured[-1].id, timeout=20) == str(COPY_FROM - 1)
        await eventually(lambda: db.value("select count(*) >= 4 from holdfast.job_logs"))
    assert looked_up == []
