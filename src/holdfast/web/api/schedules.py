"""Schedules over HTTP.  Their names stand in bodies: they may hold whatever an address may not."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from litestar import Router
from litestar.params import JSONBody

from holdfast import errors
from holdfast.model.schedule import MissedTicks, Overlap
from holdfast.model.token import Right
from holdfast.web.api.routes import Why, act, look
from holdfast.web.given import GivenOperator

UNKNOWN = (errors.ScheduleNotFound,)


class ScheduleSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule without its arguments, which may be secret and are shown with the jobs that have them."""

    name: str
    kind: str
    queue: str
    cron: str | None
    every: timedelta | None
    timezone: str
    missed: MissedTicks
    max_missed: int
    overlap: Overlap
    priority: int
    options: str
    paused: bool
    next_tick_at: datetime | None
    last_tick_at: datetime | None
    last_job_id: int | None


class ScheduleOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which schedule is meant, and why."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    reason: Why = None


class ScheduleDone(msgspec.Struct, frozen=True):
    """The schedule was acted on."""

    name: str


class ScheduleRun(msgspec.Struct, frozen=True):
    """The job that a schedule has made."""

    job_id: int


@look("/")
async def list_schedules(operator: GivenOperator) -> list[ScheduleSummary]:
    """List schedules with their next tick, in order of name."""
    found = await operator.schedules.find()
    return [msgspec.convert(one, ScheduleSummary, from_attributes=True) for one in found]


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
