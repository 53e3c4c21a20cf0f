"""The programs in docs/guides/transactions.md run as they are printed."""

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import sqlalchemy
from django.db import connections
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import holdfast
from holdfast.testing import ThrowawayDatabase
from tests.client.callers import configure_django

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "transactions.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


class Table(DeclarativeBase):
    """The guide's tables."""


class Order(Table):
    """The guide's table."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    shipped: Mapped[bool] = mapped_column(default=False, server_default="false")


async def run(block: str, names: dict[str, Any]) -> None:
    """Run one block: in a thread if it awaits nothing, as Django insists."""
    code = compile(block, "transactions.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        await eval(code, names)  # noqa: S307 - our own guide
    else:
        await asyncio.to_thread(run_sync, code, names)


def run_sync(code: Any, names: dict[str, Any]) -> None:
    """Run one block and close the connection that Django keeps for this thread."""
    exec(code, names)  # noqa: S102 - our own guide
    connections.close_all()


async def test_every_program_of_the_guide_does_what_it_says(
    db: ThrowawayDatabase, client: holdfast.Client, work: Any, eventually: Any, capsys: Any
) -> None:
    """Each block leaves its order and its job, or what its text promises instead."""
    app = holdfast.App()

    @app.job
    async def send_mail(to: str) -> str:
        return to

    url = db.dsn.replace("postgresql://", "postgresql+{}://")
    engine = sqlalchemy.create_engine(url.format("psycopg"))
    async_engine = create_async_engine(url.format("asyncpg"))
    configure_django(db.dsn)
    async with asyncpg.create_pool(db.dsn, min_size=1, max_size=2) as my_pool:
        with holdfast.SyncClient(db.dsn, schema=db.schema) as sync_client:
            names = dict(locals(), holdfast=holdfast, psycopg=psycopg, dsn=db.dsn, Order=Order)
            names |= {"Session": Session, "AsyncSession": AsyncSession}
            await db.fetch("drop table if exists public.orders")
            await my_pool.execute(
                "create table orders (id integer primary key, shipped boolean default false)"
            )
            await client.enqueue(send_mail.job(to="holder"), unique_key="mail:6", queue="other")
            for block in BLOCKS:
                await run(block, names)
            orders = await my_pool.fetch("select id from orders order by id")
            assert [row["id"] for row in orders] == [1, 2, 3, 4, 5, 6]
            mails = await db.fetch(
                "select args ->> 'to' from holdfast.live_jobs join holdfast.jobs on id = job_id"
            )
            assert sorted(row[0] for row in mails) == ["a@b.c"] * 4 + ["holder", "order 3"]
            assert "somebody else sends it:" in capsys.readouterr().out
            await work(app, queues=("default",))
            # A transaction that meets the attachment of its first partition would be tried again much later.
            parts = "select count(*) > 1 from pg_inherits where inhparent = $1::text::regclass"
            await eventually(lambda: db.value(parts, f"{db.schema}.finished_completed"))
            shipped = await client.enqueue(names["ship"].job(order_id=1))
            await client.wait(shipped.id, timeout=20)
            assert await my_pool.fetchval("select shipped from orders where id = 1")
            await my_pool.execute("drop table orders")
    engine.dispose()
    await async_engine.dispose()
