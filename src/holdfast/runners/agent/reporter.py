"""Tells the server how assignments ended, until it has heard of each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

import msgspec

from holdfast.errors import ServerRefused, ServerUnavailable
from holdfast.runners.agent.bench import Bench
from holdfast.runners.agent.messages import Fence, Held, Report
from holdfast.runners.agent.reports import for_later, instead
from holdfast.runners.agent.stages import ACCEPTED, ENDED
from holdfast.runners.agent.state import StateFolder

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
# What the reports in one sync may come to, in bytes: half of what proxies are used to let through.
CARRIED = 512 * 1024


class Reporter:
    """Keeps ends, on disk too, until the server has heard of them.

    Each is told by a request of its own.  Syncs carry those that they have room for, which tells many at
    once; the others they list as held, so that nobody takes them away before they are told.
    """

    def __init__(self, bench: Bench, state: StateFolder) -> None:
        self._bench, self._state = bench, state
        self.unheard = state.reports()
        self._former = tuple(self.unheard)
        # What no sync carries: it is too long, or a sync with it was refused.
        self._alone: set[Fence] = set()

    def held(self) -> list[Held]:
        """Return what a sync lists of the ends."""
        carried = self._carried()
        return [
            Held(job=fence.job_id, attempt=fence.attempt, state=ENDED, report=report)
            if fence in carried
            else Held(job=fence.job_id, attempt=fence.attempt, state=ACCEPTED)
            for fence, report in self.unheard.items()
        ]

    def _carried(self) -> set[Fence]:
        """Choose what the next sync carries: the oldest, as far as there is room."""
        carried, room = set[Fence](), CARRIED
        for fence, report in self.unheard.items():
            if fence in self._alone:
                continue
            size = len(msgspec.json.encode(report))
            if size > CARRIED:
                self._alone.add(fence)
            elif size > room:
                break
            else:
                carried.add(fence)
                room -= size
        return carried

    def tell_alone(self, fences: Iterable[Fence]) -> None:
        """Have no sync carry these any more."""
        self._alone.update(fences)

    def keep(self, fence: Fence, report: Report) -> None:
        """Keep an end until it is heard, on disk as well."""
        self.unheard[fence] = report
        self.save(fence, report)

    def save(self, fence: Fence, report: Report) -> None:
        """Keep an end on disk alone, for the next process, if the disk takes it."""
        try:
            self._state.keep_report(fence, for_later(report))
        except OSError as error:
            # A full disk must not keep it from the server.
            self._bench.events.emit("report.unkept", fence=fence, error=error)

    def heard(self, fence: Fence) -> None:
        """Forget an end: the server has heard of it."""
        self.unheard.pop(fence, None)
        self._alone.discard(fence)
        self._state.drop_report(fence)

    async def tell_former(self) -> None:
        """Tell, one after the other, what nobody has heard from this runner's last process."""
        for fence in self._former:
            if fence in self.unheard:
                await self.tell(fence)
                self.heard(fence)

    async def tell(self, fence: Fence) -> None:
        """Tell of an end until the server has heard; whatever it refuses now it will refuse for ever."""
        number, report, is_bare = self._bench.number(), self.unheard[fence], False
        for pause in _pauses():
            try:
                await self._bench.connection.finish(fence, number, report)
            except ServerUnavailable as error:
                self._bench.events.emit("report.postponed", fence=fence, error=error, retry_in=pause)
                await asyncio.sleep(pause)
            except ServerRefused as error:
                other = None if is_bare else instead(report, error)
                if other is None:
                    self._bench.events.emit("report.refused", fence=fence, error=error)
                    return
                number, report, is_bare = self._bench.number(), other, error.is_about_body
                self.keep(fence, report)
            else:
                return


def _pauses() -> Iterator[float]:
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(LONGEST_PAUSE, pause * 2)
