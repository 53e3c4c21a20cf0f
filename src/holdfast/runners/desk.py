"""Everything that one server process has for runners, started and stopped together."""

from __future__ import annotations

from holdfast.rules.liveness import Intervals
from holdfast.runners.conversation import Conversation
from holdfast.runners.dispatcher import Dispatcher
from holdfast.runners.files import Files
from holdfast.runners.hearing import Hearing
from holdfast.runners.registrar import Registrar
from holdfast.runtime.events import Events
from holdfast.store.database import Database


class Desk:
    """Where runners come to: registration, conversation, files.

    Let it hear the notifications of the schema: `notified` is a listener of `store.listen`.
    """

    def __init__(self, database: Database, events: Events, intervals: Intervals | None = None) -> None:
        self.intervals = intervals or Intervals()
        self.hearing = Hearing(database, self.intervals, events)
        self.dispatcher = Dispatcher(database, events)
        self.registrar = Registrar(database, self.intervals, self.hearing, events)
        self.conversation = Conversation(database, self.intervals, self.hearing, self.dispatcher, events)
        self.files = Files(database)

    async def start(self) -> None:
        """Begin to hear runners."""
        await self.hearing.start()
        await self.dispatcher.start()

    async def stop(self) -> None:
        """Answer whoever waits, and hear nobody any more."""
        self.release()
        await self.dispatcher.stop()
        await self.hearing.stop()

    def release(self) -> None:
        """Answer whoever waits at once, and let nobody wait any more: the process is about to go."""
        self.dispatcher.release()

    def notified(self, topic: str, rest: str) -> None:
        """React to a notification; see `store.listen`."""
        # What is known of runners is forgotten before those that wait are answered.
        self.hearing.notified(topic, rest)
        self.dispatcher.notified(topic, rest)
