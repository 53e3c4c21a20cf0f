"""Statements about the health of a server and a schema; each only reads."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.health import (
    DeadRows,
    HorizonHolder,
    LeaderHealth,
    LockWait,
    LostWorker,
    QueueHealth,
    RouteHealth,
    ServerFacts,
)
from holdfast.store.sqlfile import blocks
from holdfast.store.statement import Row, Statement, column

_SQL = blocks("doctor")


def server_facts() -> Statement[ServerFacts]:
    """Look at the server; needs no schema."""
    return Statement("server_facts", _SQL["server_facts"], (), _server)


def _server(rows: Sequence[Row]) -> ServerFacts:
    return ServerFacts(*rows[0])


def lock_waits(longer_than: float) -> Statement[list[LockWait]]:
    """Find sessions that have waited longer than so many seconds for a lock; needs no schema."""
    return Statement("lock_waits", _SQL["lock_waits"], (longer_than,), _waits)


def _waits(rows: Sequence[Row]) -> list[LockWait]:
    return [LockWait(*row) for row in rows]


def horizon_holders() -> Statement[list[HorizonHolder]]:
    """Find who keeps vacuum from removing dead rows; needs no schema."""
    return Statement("horizon_holders", _SQL["horizon_holders"], (), _holders)


def _holders(rows: Sequence[Row]) -> list[HorizonHolder]:
    return [HorizonHolder(*row) for row in rows]


def dead_rows() -> Statement[DeadRows | None]:
    """Look how many dead rows live_jobs drags along."""
    return Statement("dead_rows", _SQL["dead_rows"], (), _dead_rows)


def _dead_rows(rows: Sequence[Row]) -> DeadRows | None:
    return DeadRows(*rows[0]) if rows else None


def queue_health() -> Statement[list[QueueHealth]]:
    """Look at every queue that has jobs for workers to claim."""
    return Statement("queue_health", _SQL["queue_health"], (), _queues)


def _queues(rows: Sequence[Row]) -> list[QueueHealth]:
    return [QueueHealth(*row) for row in rows]


def route_health() -> Statement[list[RouteHealth]]:
    """Look what jobs for runners that can be claimed ask of one."""
    return Statement("route_health", _SQL["route_health"], (), _routes)


def _routes(rows: Sequence[Row]) -> list[RouteHealth]:
    return [RouteHealth(*row) for row in rows]


def leader_health() -> Statement[LeaderHealth]:
    """Look whether somebody leads."""
    return Statement("leader_health", _SQL["leader_health"], (), _leader)


def _leader(rows: Sequence[Row]) -> LeaderHealth:
    return LeaderHealth(*rows[0])


def filled_rests() -> Statement[list[str]]:
    """Find default partitions that hold rows."""
    return Statement("filled_rests", _SQL["filled_rests"], (), column)


def held_for_people() -> Statement[list[int]]:
    """Find jobs that wait until somebody resumes them, and that nobody has paused; 1,000 at most."""
    return Statement("held_for_people", _SQL["held_for_people"], (), column)


def lost_workers(within: float) -> Statement[list[LostWorker]]:
    """Find workers declared lost within so many seconds."""
    return Statement("lost_workers", _SQL["lost_workers"], (within,), _lost)


def _lost(rows: Sequence[Row]) -> list[LostWorker]:
    return [LostWorker(*row) for row in rows]
