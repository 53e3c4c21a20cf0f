"""A partition that is attached just when history is written."""

import asyncio
from typing import Any

import pytest

from holdfast.errors import DatabaseRefused
from holdfast.store.sqlfile import rendered
from tests.store.scene import Scene, drop_partitions

ATTACH = """
create table holdfast.today (like holdfast.finished_completed including defaults including constraints);
lock table holdfast.finished_completed_rest in access exclusive mode;
alter table holdfast.finished_completed attach partition holdfast.today
    for values from ('-infinity') to ('infinity');
"""


async def test_an_outcome_that_meets_an_attach_is_not_taken_for_a_bad_one(
    scene: Scene, eventually: Any
) -> None:
    """PostgreSQL refuses the row for the partition it chose before; that is told as worth another try."""
    await drop_partitions(scene.db)
    job = await scene.one()
    session = await scene.session()
    transaction = session.transaction()
    await transaction.start()
    await session.execute(rendered(ATTACH, scene.db.schema))
    completing = asyncio.create_task(scene.complete(job))
    await eventually(lambda: scene.db.value("select count(*) from pg_locks where not granted"))
    await transaction.commit()
    with pytest.raises(DatabaseRefused, match="partition"):
        await completing
    assert await scene.complete(job) == [job.id]
