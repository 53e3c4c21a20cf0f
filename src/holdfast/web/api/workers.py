"""Workers over HTTP."""

from __future__ import annotations

from litestar import Router
from litestar.params import FromQuery, JSONBody

from holdfast import errors
from holdfast.client.wire.shape import Because
from holdfast.client.wire.workers import Draining, Resumed, WorkerStory
from holdfast.model.token import Right
from holdfast.model.worker import WorkerRecord
from holdfast.web.api.routes import Id, act, look, reason_of
from holdfast.web.given import GivenOperator


@look("/")
async def list_workers(operator: GivenOperator, ended: FromQuery[bool] = False) -> list[WorkerRecord]:
    """List workers, newest first: what they run and when their lease was renewed."""
    return list(await operator.workers.find(ended=ended))


@look("/{worker_id:int}", raises=(errors.WorkerNotFound,))
async def show_worker(worker_id: Id, operator: GivenOperator) -> WorkerStory:
    """Show a worker: how it is heard, what it holds, what operators did to it."""
    return await operator.workers.show(worker_id)


@act("/{worker_id:int}/drain", Right.OPERATE, raises=(errors.WorkerNotFound, errors.WorkerEnded))
async def drain_worker(
    worker_id: Id, operator: GivenOperator, data: JSONBody[Because | None] = None
) -> Draining:
    """Ask a worker to take nothing more and to leave when what it runs has ended; a runner stays."""
    await operator.workers.drain(worker_id, reason_of(data))
    return Draining(worker_id)


@act("/{worker_id:int}/resume", Right.OPERATE, raises=(errors.WorkerNotFound,))
async def resume_worker(
    worker_id: Id, operator: GivenOperator, data: JSONBody[Because | None] = None
) -> Resumed:
    """Let a drained runner take jobs again."""
    await operator.workers.resume(worker_id, reason_of(data))
    return Resumed(worker_id)


router = Router(
    "/workers", route_handlers=[list_workers, show_worker, drain_worker, resume_worker], tags=["workers"]
)
