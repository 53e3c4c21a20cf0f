"""Tests without asyncio have the same kit."""

from datetime import UTC, datetime, timedelta

import holdfast
from holdfast.testing import SyncThrowawayDatabase

NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)


def test_jobs_are_drained_without_asyncio(dsn: str) -> None:
    """Enqueue by SQL, drain and look, all in plain functions."""
    app = holdfast.App()

    @app.job
    def double(n: int) -> int:
        return 2 * n

    with SyncThrowawayDatabase(dsn) as db:
        db.fetch("select holdfast.enqueue('double', '{\"n\": 21}')")
        report = db.drain(app)
        assert [one.result for one in report.of(double)] == [42]
        assert db.value("select result from holdfast.finished_jobs") == "42"


def test_the_clock_moves_without_asyncio(dsn: str) -> None:
    """Set, advance and release are there as methods."""
    with SyncThrowawayDatabase(dsn) as db:
        db.set_clock(NOON)
        assert db.advance_clock(timedelta(minutes=1)) == NOON + timedelta(minutes=1) == db.now()
        db.release_clock()
        assert db.now() < NOON


def test_the_schema_is_gone_afterwards(dsn: str) -> None:
    """Nothing of a throw-away database stays on the server."""
    there = "select count(*) from pg_namespace where nspname = $1"
    with SyncThrowawayDatabase(dsn) as db:
        with SyncThrowawayDatabase(dsn) as other:
            assert db.value(there, other.schema) == 1
        assert db.value(there, other.schema) == 0
