"""The throw-away database, its clock and drain for tests without asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from holdfast.app.registry import App
from holdfast.testing.clock import Clock
from holdfast.testing.database import ThrowawayDatabase
from holdfast.testing.drain import drain
from holdfast.testing.report import DrainReport

T = TypeVar("T")


class SyncThrowawayDatabase:
    """A `ThrowawayDatabase` for ``with``: the same verbs, and drain and clock as methods.

    It runs an event loop of its own for the length of each call, so call it where none is running.
    """

    def __init__(self, dsn: str, *, schema: str | None = None, **options: Any) -> None:
        self._db = ThrowawayDatabase(dsn, schema=schema, **options)
        self._clock = Clock(self._db)
        self._runner = asyncio.Runner()

    @property
    def dsn(self) -> str:
        """The address of the server."""
        return self._db.dsn

    @property
    def schema(self) -> str:
        """The name of the schema."""
        return self._db.schema

    def __enter__(self) -> Self:
        self._run(self._db.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._run(self._db.__aexit__(kind, error, trace))
        finally:
            self._runner.close()

    def fetch(self, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run SQL written against schema ``holdfast`` on this schema; answers its rows."""
        return self._run(self._db.fetch(text, *parameters))

    def value(self, text: str, *parameters: Any) -> Any:
        """Run SQL like `fetch`; answers the first column of the first row, or None."""
        return self._run(self._db.value(text, *parameters))

    def drain(
        self,
        app: App,
        *,
        queues: Sequence[str] | None = None,
        include_scheduled: bool = False,
        stop_on_error: bool = False,
        limit: int = 1000,
    ) -> DrainReport:
        """Run jobs until none is available; see `holdfast.testing.drain`."""
        return self._run(
            drain(
                app,
                self._db,
                queues=queues,
                include_scheduled=include_scheduled,
                stop_on_error=stop_on_error,
                limit=limit,
            )
        )

    def now(self) -> datetime:
        """Return the time of the schema; see `Clock`."""
        return self._run(self._clock.now())

    def set_clock(self, moment: datetime) -> None:
        """Stop the schema's clock at *moment*."""
        self._run(self._clock.set(moment))

    def advance_clock(self, time: timedelta | float) -> datetime:
        """Move the schema's clock on by *time*, stop it there and return that moment."""
        return self._run(self._clock.advance(time))

    def release_clock(self) -> None:
        """Let the schema's clock run again."""
        self._run(self._clock.release())

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)
