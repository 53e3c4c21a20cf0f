"""Tells many listeners in one process what happens; whoever does not keep up is dropped, not waited for."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

BACKLOG = 256


class Listener(Generic[T]):
    """What one listener has not heard yet, in order; what it is told twice in a row by then it hears once.

    *dropped* says that more came while its backlog was full: what it has not heard by then is gone.
    *nudged* says that it was nudged since the last call of `heard`.
    """

    def __init__(self, topics: frozenset[Hashable], backlog: int) -> None:
        self.topics, self.dropped, self.nudged = topics, False, False
        self._backlog = backlog
        self._waiting: deque[T] = deque()
        self._filled = asyncio.Event()

    def tell(self, news: Sequence[T]) -> bool:
        """Keep *news* for it; False: it did not keep up with former ones, and hears nothing more."""
        if self.dropped:
            return False
        if self._waiting and [self._waiting[-1]] == news:
            return True
        if len(self._waiting) >= self._backlog:
            self.drop()
        else:
            self._waiting.extend(news)
        self._filled.set()
        return not self.dropped

    def drop(self) -> None:
        """Let it hear nothing more, not even what came before."""
        self.dropped = True
        self._waiting.clear()
        self._filled.set()

    def nudge(self) -> None:
        """Let it hear that there is nothing new."""
        self.nudged = True
        self._filled.set()

    def heard(self) -> list[T]:
        """Return what came since the last call."""
        self._filled.clear()
        self.nudged = False
        news, self._waiting = list(self._waiting), deque()
        return news

    async def wait(self, timeout: float) -> bool:
        """Wait until there is something to hear, it is dropped or nudged; False after *timeout* seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._filled.wait()
        except TimeoutError:
            return False
        return True


class Broadcaster(Generic[T]):
    """Passes news on to the listeners of their topics, at a cost that goes with these and no others."""

    def __init__(self, backlog: int = BACKLOG) -> None:
        self._backlog = backlog
        self._listeners: defaultdict[Hashable, set[Listener[T]]] = defaultdict(set)

    def subscribe(self, topics: Iterable[Hashable]) -> Listener[T]:
        """Return a listener that hears all of *topics* from now on."""
        listener: Listener[T] = Listener(frozenset(topics), self._backlog)
        for topic in listener.topics:
            self._listeners[topic].add(listener)
        return listener

    def unsubscribe(self, listener: Listener[T]) -> None:
        """Forget a listener; safe to call twice."""
        for topic in listener.topics & self._listeners.keys():
            self._listeners[topic].discard(listener)
            if not self._listeners[topic]:
                del self._listeners[topic]

    def publish(self, topics: Iterable[Hashable], news: T) -> None:
        """Tell every listener of any of *topics* once; those that do not keep up are dropped."""
        self.publish_all([(topics, news)])

    def publish_all(self, told: Iterable[tuple[Iterable[Hashable], T]]) -> None:
        """Tell what came at once, each to its topics, however much: nobody could hear a part of it before."""
        gathered: defaultdict[Listener[T], list[T]] = defaultdict(list)
        for topics, news in told:
            known = [self._listeners[topic] for topic in topics if topic in self._listeners]
            for listener in set().union(*known):
                gathered[listener].append(news)
        for listener, all_news in gathered.items():
            if not listener.tell(all_news):
                self.unsubscribe(listener)

    def drop_all(self) -> None:
        """Drop every listener: there will be no more news."""
        for listener in self._all:
            listener.drop()
            self.unsubscribe(listener)

    def nudge_all(self) -> None:
        """Nudge every listener."""
        for listener in self._all:
            listener.nudge()

    @property
    def count(self) -> int:
        """How many listeners there are."""
        return len(self._all)

    @property
    def _all(self) -> set[Listener[T]]:
        return {one for some in self._listeners.values() for one in some}

    @property
    def topics(self) -> frozenset[Hashable]:
        """The topics that somebody listens to."""
        return frozenset(self._listeners)
