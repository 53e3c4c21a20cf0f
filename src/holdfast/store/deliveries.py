"""Statements about deliveries out, and about the endpoints that get them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.model.delivery import DeliveryRecord, DeliveryState, Endpoint
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, column, count, first_value, is_any, numbers

_SQL = blocks("deliveries")


@dataclass(frozen=True, slots=True)
class Horizon:
    """History is complete up to *moment* once *writers* are over, as seen at the time *now* of the server."""

    moment: datetime
    now: datetime
    writers: list[str]


def delivery_horizon() -> Statement[Horizon | None]:
    """Look who still writes history; None: nobody wants to be told of anything."""
    return Statement("delivery_horizon", _SQL["delivery_horizon"], (), _horizon)


def _horizon(rows: Sequence[Row]) -> Horizon | None:
    return Horizon(*rows[0]) if rows else None


@dataclass(frozen=True, slots=True)
class PlannedDeliveries:
    """The ids of new deliveries with the names of their endpoints.

    *more* says that there is more history, *dense* that there is more in the seconds that were looked at.
    """

    made: list[tuple[int, str]]
    more: bool
    dense: bool


def plan_deliveries(
    term: int, complete: datetime, limit: int, *, window: float, back: float = 0.0
) -> Statement[PlannedDeliveries]:
    """Make deliveries for what ended up to *complete*, from *back* seconds before the end of the last look.

    It reads *window* seconds of history.  After `feed.plan_by_time`.
    """
    parameters = (term, complete, limit, back, window)
    return Statement("plan_deliveries", _SQL["plan_deliveries"], parameters, _planned)


def _planned(rows: Sequence[Row]) -> PlannedDeliveries:
    made = [(row[0], row[1]) for row in rows if row[0] is not None]
    return PlannedDeliveries(made, any(row[2] for row in rows), any(row[3] for row in rows))


def carry_deliveries(ids: Sequence[int], carriers: Sequence[int]) -> Statement[list[int]]:
    """Remember which jobs carry deliveries."""
    return Statement("carry_deliveries", _SQL["carry_deliveries"], (numbers(ids), numbers(carriers)), column)


@dataclass(frozen=True, slots=True)
class OpenDelivery:
    """What a carrier has to deliver, and where."""

    id: int
    event: str
    body: str
    endpoint: str
    url: str
    secret: str
    delivered: bool


def open_delivery(delivery_id: int) -> Statement[OpenDelivery | None]:
    """Look what is to be delivered; None: nobody wants it any more."""
    return Statement("open_delivery", _SQL["open_delivery"], (delivery_id,), _open)


def _open(rows: Sequence[Row]) -> OpenDelivery | None:
    return OpenDelivery(*rows[0]) if rows else None


def note_delivery(delivery_id: int, status: int | None, problem: str | None) -> Statement[bool]:
    """Write what a try to deliver came to; no *problem*: it was taken."""
    return Statement("note_delivery", _SQL["note_delivery"], (delivery_id, status, problem), is_any)


def lock_delivery(delivery_id: int) -> Statement[bool]:
    """Lock a delivery until the transaction ends; False: there is none."""
    return Statement("lock_delivery", _SQL["lock_delivery"], (delivery_id,), is_any)


def list_deliveries(
    endpoint: str | None, state: DeliveryState | None, *, before: int | None, limit: int
) -> Statement[list[DeliveryRecord]]:
    """Find deliveries with ids below *before*, newest first."""
    parameters = (endpoint, None if state is None else state.value, before, limit)
    return Statement("list_deliveries", _SQL["list_deliveries"], parameters, _records)


def _records(rows: Sequence[Row]) -> list[DeliveryRecord]:
    return [
        DeliveryRecord(
            id=row[0],
            endpoint=row[1],
            job_id=row[2],
            event=row[3],
            at=row[4],
            delivered_at=row[5],
            status=row[6],
            problem=row[7],
            carrier_id=row[8],
            state=DeliveryState(row[9]),
        )
        for row in rows
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEndpoint:
    """Who wants to be told of what."""

    name: str
    url: str
    secret: str
    events: Sequence[str]
    queues: Sequence[str]
    kinds: Sequence[str]
    created_by: str


def add_endpoint(new: NewEndpoint, at_once: int) -> Statement[int | None]:
    """Remember an endpoint, and how many deliveries each gets *at_once*; None: another one has its name."""
    parameters = (
        new.name,
        new.url,
        new.secret,
        list(new.events),
        list(new.queues),
        list(new.kinds),
        new.created_by,
        at_once,
    )
    return Statement("add_endpoint", _SQL["add_endpoint"], parameters, first_value)


def list_endpoints() -> Statement[list[Endpoint]]:
    """List the endpoints, without their secrets."""
    return Statement("list_endpoints", _SQL["list_endpoints"], (), _endpoints)


def _endpoints(rows: Sequence[Row]) -> list[Endpoint]:
    return [
        Endpoint(
            id=row[0],
            name=row[1],
            url=row[2],
            events=tuple(row[3]),
            queues=tuple(row[4]),
            kinds=tuple(row[5]),
            created_by=row[6],
            created_at=row[7],
        )
        for row in rows
    ]


def remove_endpoint(name: str) -> Statement[Endpoint | None]:
    """Forget an endpoint with its deliveries; None: there is none."""
    return Statement("remove_endpoint", _SQL["remove_endpoint"], (name,), _removed)


def _removed(rows: Sequence[Row]) -> Endpoint | None:
    return next(iter(_endpoints(rows)), None)


def prune_deliveries(term: int, seconds: float, limit: int) -> Statement[int]:
    """Delete deliveries that were made more than *seconds* ago; answers how many."""
    return Statement("prune_deliveries", _SQL["prune_deliveries"], (term, seconds, limit), count)
