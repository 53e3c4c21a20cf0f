"""What a process says of itself to an orchestrator."""

import asyncio
from collections.abc import Callable

from holdfast.cli.wiring import MaintenanceProcess
from holdfast.maintenance.config import MaintenanceConfig
from holdfast.runtime.events import Events
from holdfast.store.database import DatabaseConfig
from holdfast.testing import Probe, ThrowawayDatabase


async def until(fact: Callable[[], bool]) -> None:
    """Wait for a fact."""
    async with asyncio.timeout(30):
        while not fact():  # noqa: ASYNC110 - what time does emits no event
            await asyncio.sleep(0.01)


async def test_a_process_without_a_worker_is_ready_while_its_database_answers(
    db: ThrowawayDatabase, probe: Probe
) -> None:
    """It goes on standing for leader through an outage, but does nothing then that anybody could use."""
    config = DatabaseConfig(dsn=db.dsn, schema=db.schema)
    process = MaintenanceProcess(config, Events(probe), MaintenanceConfig(leader_ttl=1.0))
    assert not process.ready()
    await process.start()
    try:
        await until(process.ready)
        await db.fetch("alter table holdfast.leader rename to hidden")
        await until(lambda: not process.ready())
        await db.fetch("alter table holdfast.hidden rename to leader")
        await until(process.ready)
    finally:
        await process.stop()
    assert not process.ready()
