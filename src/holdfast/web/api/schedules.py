"""Schedules over HTTP.  Their names stand in bodies: they may hold whatever an address may not."""

from __future__ import annotations

from litestar import Router
from litestar.params import JSONBody

from holdfast import errors
from holdfast.client.wire.schedules import ScheduleDone, ScheduleOrder, ScheduleRun, ScheduleSummary, summary
from holdfast.model.token import Right
from holdfast.web.api.routes import act, look
from holdfast.web.given import GivenOperator

UNKNOWN = (errors.ScheduleNotFound,)


@look("/")
async def list_schedules(operator: GivenOperator) -> list[ScheduleSummary]:
    """List schedules with their next tick, in order of name."""
    found = await operator.schedules.find()
    return [summary(one) for one in found]


@act("/run", Right.OPERATE, status=201, raises=UNKNOWN)
async def run_schedule(data: JSONBody[ScheduleOrder], operator: GivenOperator) -> ScheduleRun:
    """Enqueue a job of a schedule now, beside its ticks, paused or not."""
    return ScheduleRun(await operator.schedules.run(data.name, data.reason))


@act("/pause", Right.OPERATE, raises=UNKNOWN)
async def pause_schedule(data: JSONBody[ScheduleOrder], operator: GivenOperator) -> ScheduleDone:
    """Let a schedule make no jobs; ticks in a pause are not missed ones."""
    await operator.schedules.pause(data.name, data.reason)
    return ScheduleDone(data.name)


@act("/resume", Right.OPERATE, raises=UNKNOWN)
async def resume_schedule(data: JSONBody[ScheduleOrder], operator: GivenOperator) -> ScheduleDone:
    """Let a schedule make jobs again, from now on."""
    await operator.schedules.resume(data.name, data.reason)
    return ScheduleDone(data.name)


@act("/delete", Right.OPERATE, raises=UNKNOWN)
async def delete_schedule(data: JSONBody[ScheduleOrder], operator: GivenOperator) -> ScheduleDone:
    """Forget a schedule; an application that still declares it stores it again when a worker starts."""
    await operator.schedules.delete(data.name, data.reason)
    return ScheduleDone(data.name)


router = Router(
    "/schedules",
    route_handlers=[list_schedules, run_schedule, pause_schedule, resume_schedule, delete_schedule],
    tags=["schedules"],
)
