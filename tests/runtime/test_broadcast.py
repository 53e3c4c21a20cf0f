"""Every listener hears all of its topics in order, until it falls behind."""

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from holdfast.runtime.broadcast import Broadcaster, Listener

BACKLOG = 3
TOPICS = st.frozensets(st.sampled_from("abc"), min_size=1)


class Room(RuleBasedStateMachine):
    """A broadcaster beside a model: for each listener what it has to hear, and whether it was dropped."""

    listeners: Bundle[Listener[int]] = Bundle("listeners")

    def __init__(self) -> None:
        super().__init__()
        self.broadcaster: Broadcaster[int] = Broadcaster(BACKLOG)
        self.unheard: dict[Listener[int], list[int]] = {}
        self.dropped: set[Listener[int]] = set()
        self.count = 0

    @rule(target=listeners, topics=TOPICS)
    def subscribe(self, topics: frozenset[str]) -> Listener[int]:
        """Somebody begins to listen and has nothing to hear yet."""
        listener = self.broadcaster.subscribe(topics)
        self.unheard[listener] = []
        return listener

    @rule(topics=TOPICS)
    def publish(self, topics: frozenset[str]) -> None:
        """News come: to each listener of a topic once, and too much of them drops it."""
        self.count += 1
        self.broadcaster.publish(topics, self.count)
        for listener, unheard in self.unheard.items():
            if listener.topics & topics and listener not in self.dropped:
                unheard.append(self.count)
                if len(unheard) > BACKLOG:
                    self.dropped.add(listener)
                    unheard.clear()

    @rule()
    def drop_all(self) -> None:
        """Everybody is dropped who is here."""
        self.broadcaster.drop_all()
        for listener, unheard in self.unheard.items():
            self.dropped.add(listener)
            unheard.clear()

    @rule(listener=listeners)
    def hear(self, listener: Listener[int]) -> None:
        """Who listens hears what came, in order, once."""
        assert listener.heard() == self.unheard.get(listener, [])
        self.unheard.get(listener, []).clear()

    @rule(listener=consumes(listeners))
    def unsubscribe(self, listener: Listener[int]) -> None:
        """Who leaves hears nothing more, and may leave twice."""
        for _ in range(2):
            self.broadcaster.unsubscribe(listener)
        del self.unheard[listener]

    @invariant()
    def nobody_is_kept_who_left(self) -> None:
        """Topics are those of listeners that keep up, and only those are dropped that did not."""
        here = [listener for listener in self.unheard if listener not in self.dropped]
        assert self.broadcaster.topics == {topic for listener in here for topic in listener.topics}
        dropped = {listener for listener in self.unheard if listener.dropped}
        assert dropped == self.dropped & self.unheard.keys()


TestRoom = Room.TestCase
TestRoom.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


async def test_a_listener_waits_until_there_is_something() -> None:
    """The wait ends with the news, at once where there are some already, and with its time."""
    broadcaster: Broadcaster[str] = Broadcaster()
    listener = broadcaster.subscribe(["a"])
    assert not await listener.wait(0.01)
    waiting = asyncio.create_task(listener.wait(10))
    await asyncio.sleep(0)
    broadcaster.publish(["a", "b"], "hello")
    assert await waiting
    assert await listener.wait(10)
    assert listener.heard() == ["hello"]


async def test_what_comes_together_is_heard_together() -> None:
    """Many news at once drop nobody who had heard all before; who had not is dropped by the next ones."""
    broadcaster: Broadcaster[int] = Broadcaster(backlog=2)
    listener = broadcaster.subscribe(["a"])
    broadcaster.publish_all([(["a"], 1), (["b"], 2), (["a", "b"], 3), (["a"], 4)])
    assert listener.heard() == [1, 3, 4]
    broadcaster.publish_all((["a"], n) for n in range(3))
    broadcaster.publish(["a"], 3)
    assert listener.dropped


async def test_a_dropped_listener_is_told_at_once() -> None:
    """It does not wait for news that will not come."""
    broadcaster: Broadcaster[int] = Broadcaster(backlog=1)
    listener = broadcaster.subscribe(["a"])
    for n in range(3):
        broadcaster.publish(["a"], n)
    assert await listener.wait(10)
    assert listener.dropped
    assert listener.heard() == []
