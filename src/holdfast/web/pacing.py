"""Remembers who did how much of late, and for how long they have to wait."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from holdfast.errors import RequestsTooMany
from holdfast.rules.pace import Bucket, Pace, filled, full, patience, taken

MOST_REMEMBERED = 20_000


class Pacer:
    """Keeps a bucket for each of those who were seen last; *what* names what there are too many of."""

    def __init__(self, what: str, pace: Pace, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._pace, self._clock = what, pace, clock
        self._buckets: OrderedDict[Hashable, Bucket] = OrderedDict()

    def take(self, who: Hashable) -> None:
        """Count one more; raises `RequestsTooMany`."""
        now = self._clock()
        bucket = self._buckets.pop(who, None) or full(self._pace, now)
        after = taken(bucket, self._pace, now)
        self._remember(who, bucket if after is None else after)
        if after is None:
            self._refuse(bucket, now)

    def check(self, who: Hashable) -> None:
        """Raise `RequestsTooMany` for whom nothing is left, without counting."""
        now = self._clock()
        bucket = self._buckets.get(who)
        if bucket is not None and filled(bucket, self._pace, now).left < 1:
            self._refuse(bucket, now)

    def _refuse(self, bucket: Bucket, now: float) -> None:
        raise RequestsTooMany(self._what, patience(bucket, self._pace, now))

    def _remember(self, who: Hashable, bucket: Bucket) -> None:
        self._buckets[who] = bucket
        if len(self._buckets) > MOST_REMEMBERED:
            # Whoever was not seen for longest has most of its bucket back.
            self._buckets.popitem(last=False)
