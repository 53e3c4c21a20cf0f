"""The worker inside a service that carries deliveries."""

from __future__ import annotations

from holdfast.cli.wiring import MaintenanceProcess
from holdfast.model.delivery import AT_ONCE, QUEUE
from holdfast.runners.courier import Courier
from holdfast.worker.config import WorkerConfig
from holdfast.worker.worker import Worker

# Each waits for somebody else's server, which costs next to nothing. Forty endpoints that do not answer fill
# them, and what others are to be told waits until those have given up.
SLOTS = 40 * AT_ONCE


class DeliveryWorker:
    """A worker of *process* on the queue of deliveries; *private* says where these may go."""

    def __init__(self, process: MaintenanceProcess, *, private: bool) -> None:
        courier = Courier(process.database, private=private)
        config = WorkerConfig(
            database=process.database.config, queues=(QUEUE,), slots=SLOTS, prefetch=0, name=None
        )
        self._worker = Worker(courier.app(), process.database, config, process.events)
        if process.notifications is not None:
            process.notifications.subscribe(self._worker.notified)

    async def start(self) -> None:
        """Begin to carry."""
        await self._worker.start()

    async def stop(self) -> None:
        """Give what is under way back."""
        await self._worker.stop(0.0)
