"""Deliveries out: the ends of attempts and jobs, told to a URL."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.model.job import NewJob

KIND = "holdfast:deliver"
QUEUE = "holdfast:deliveries"
# With the rests of the default backoff the last try is made a day after the first one.
MAX_ATTEMPTS = 30
TIMEOUT = 60.0
# How many deliveries may be under way to one endpoint at once, until an operator says otherwise.
AT_ONCE = 5


class DeliveryEvent(StrEnum):
    """What an endpoint may be told of: the end of a job, or of an attempt whose job goes on."""

    JOB_COMPLETED = "job.completed"
    JOB_FAILED = "job.failed"
    JOB_CANCELLED = "job.cancelled"
    ATTEMPT_RETRIED = "attempt.retried"
    ATTEMPT_SNOOZED = "attempt.snoozed"
    ATTEMPT_LOST = "attempt.lost"
    ATTEMPT_RELEASED = "attempt.released"
    ATTEMPT_SUSPENDED = "attempt.suspended"


ENDS = (DeliveryEvent.JOB_COMPLETED, DeliveryEvent.JOB_FAILED, DeliveryEvent.JOB_CANCELLED)


class DeliveryState(StrEnum):
    """Where a delivery stands; *dead* ones are tried again only if somebody asks for it."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    DEAD = "dead"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Who is told of *events*, in *queues* and of *kinds*: of all where there are none."""

    id: int
    name: str
    url: str
    events: tuple[str, ...]
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    created_by: str
    created_at: datetime


class DeliveryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One event for one endpoint.

    *carrier_id* is the job that delivers it, *status* that of the last answer.
    """

    id: int
    endpoint: str
    job_id: int
    event: str
    at: datetime
    delivered_at: datetime | None
    status: int | None
    problem: str | None
    carrier_id: int | None
    state: DeliveryState


def carrier(delivery_id: int, endpoint: str) -> NewJob:
    """Return the job that carries a delivery.

    Its key is the endpoint's name: one that takes connections and never answers must not hold up others.
    """
    return NewJob(
        kind=KIND,
        queue=QUEUE,
        args=f'{{"delivery": {delivery_id}}}',
        max_attempts=MAX_ATTEMPTS,
        timeout=TIMEOUT,
        concurrency_key=endpoint,
    )
