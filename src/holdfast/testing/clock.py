"""The clock of a throw-away schema: stop it, move it, let it run again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.app.options import seconds_from
from holdfast.errors import OptionInvalid

if TYPE_CHECKING:
    from holdfast.testing.database import ThrowawayDatabase

# Statements take their time from holdfast.now() alone, so replacing it moves leases, staging, schedules
# and every recorded time at once.  The text is here and not in store/sql: nothing but a test may do this.
_REPLACE = """
create or replace function holdfast.now() returns timestamptz
language sql stable parallel safe as $$ select {moment} $$
"""
_RUNNING = "statement_timestamp()"


class Clock:
    """The time as Holdfast's statements see it in one throw-away schema.

    It runs with the server's clock until `set` or `advance` stops it; `release` lets it run again.
    Handlers that ask Python for the time do not see it, and a handler's timeout is real time.  A worker
    that runs while the clock jumps by more than eight seconds past its ttl has a full ttl to renew its
    lease, once in two minutes.
    """

    def __init__(self, db: ThrowawayDatabase) -> None:
        self._db = db

    async def now(self) -> datetime:
        """Return the time of the schema."""
        moment: datetime = await self._db.value("select holdfast.now()")
        return moment

    async def is_stopped(self) -> bool:
        """Return whether the clock stands still."""
        found: str = await self._db.value(
            "select prosrc from pg_proc where oid = 'holdfast.now()'::regprocedure"
        )
        return _RUNNING not in found

    async def set(self, moment: datetime) -> None:
        """Stop the clock at *moment*, which has a time zone."""
        if moment.tzinfo is None:
            raise OptionInvalid(
                "moment", moment, "give a datetime with a time zone, such as datetime.now(UTC)"
            )
        await self._replace(f"timestamptz '{moment.isoformat()}'")

    async def advance(self, time: timedelta | float) -> datetime:
        """Move the clock on by *time* (a timedelta or seconds), stop it there and return that moment."""
        moment = await self.now() + timedelta(seconds=seconds_from("time", time))
        await self.set(moment)
        return moment

    async def release(self) -> None:
        """Let the clock run with the server's again."""
        await self._replace(_RUNNING)

    async def _replace(self, moment: str) -> None:
        await self._db.fetch(_REPLACE.format(moment=moment))
        # Whoever rests until a due time reckoned with the old clock.
        for topic in ("stage", "reconnected"):
            await self._db.fetch("select pg_notify('holdfast', $1)", topic)
