"""The live feed of one process: looks what has changed, while somebody listens, and tells all who do.

Nobody who enqueues, claims or finishes a job knows of the feed, or pays for it: it reads history from where
it last looked.  So it tells how jobs stand at each look, not every state they passed through in between, and
where more happens between two looks than it may read, it says that it skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

from holdfast.model.change import Change
from holdfast.rules.sight import Sight
from holdfast.runtime.broadcast import Broadcaster, Listener
from holdfast.runtime.events import Events
from holdfast.runtime.service import Service
from holdfast.store import feed, log_chunks
from holdfast.store.database import Connection, Database
from holdfast.store.feed import FeedPlace

LOOK_EVERY = 0.5
IDLE = 3600.0
# At most so many changes of a sort are told of one look.
MOST = 5000
# Of new jobs: a look sees again those of the seconds before, for their transactions may commit late.
MOST_NEW = 20_000
# Of jobs that are held: a large fleet holds as many all the time, and that is nothing new.
MOST_HELD = 20_000
# A job that was enqueued or ended may be seen a little after its time: its transaction had to commit.
LATE = timedelta(seconds=2)
# The server notifies of log lines for so long after it was asked to, and is asked again in time.
WATCHED_FOR, WATCH_EVERY = 60.0, 20.0
TIMEOUT = "10s"


@dataclass(frozen=True, slots=True)
class JobTopic:
    """What happens to one job."""

    job_id: int


@dataclass(frozen=True, slots=True)
class LogTopic:
    """That one job has logged something."""

    job_id: int


@dataclass(frozen=True, slots=True)
class QueueTopic:
    """What happens in one queue."""

    queue: str


@dataclass(frozen=True, slots=True)
class EveryTopic:
    """What happens to any job."""


Topic = JobTopic | LogTopic | QueueTopic | EveryTopic


@dataclass(frozen=True, slots=True)
class Skipped:
    """More happened since the last look than is told: a listing shows how things stand."""


@dataclass(frozen=True, slots=True)
class Logged:
    """The job that is listened to has logged something."""


@dataclass(frozen=True, slots=True)
class News:
    """Something to hear; *place* is where a feed goes on that has heard it."""

    what: Change | Skipped | Logged
    place: FeedPlace | None = None


class Feed(Service):
    """Takes two looks a second while somebody listens, and no more for a thousand listeners.

    Once *is_over*, a listener that is dropped has not fallen behind.
    """

    name = "feed"

    def __init__(
        self, database: Database, events: Events, broadcaster: Broadcaster[News] | None = None
    ) -> None:
        super().__init__(events)
        self._database = database
        self._broadcaster: Broadcaster[News] = broadcaster or Broadcaster()
        self._near, self._wide = Sight(), Sight()
        self._place: FeedPlace | None = None
        self._watch_at, self._subscribed = 0.0, 0
        self.is_over = False
        self.looks = 0

    def subscribe(self, *topics: Topic) -> Listener[News]:
        """Return a listener that hears of *topics* from the next look on, which is taken at once.

        `unsubscribe` it in the end.
        """
        listener = self._broadcaster.subscribe(topics)
        if self.is_over:
            self._broadcaster.drop_all()
        self._watch_at, self._subscribed = 0.0, self._subscribed + 1
        self.wake()
        return listener

    def unsubscribe(self, listener: Listener[News]) -> None:
        """Forget a listener."""
        self._broadcaster.unsubscribe(listener)

    @property
    def listeners(self) -> int:
        """How many listen."""
        return self._broadcaster.count

    def release(self) -> None:
        """Drop every listener, so that a service can stop."""
        self.is_over = True
        self._broadcaster.drop_all()

    def notified(self, topic: str, rest: str) -> None:
        """React to a notification; see `store.listen`."""
        if topic == "log" and rest.isdecimal():
            self._tell_logged([LogTopic(int(rest))])
        elif topic == "reconnected":
            # Anything may have been missed.
            self._tell_logged([one for one in self._broadcaster.topics if isinstance(one, LogTopic)])
            self.wake()
        elif topic == "tokens":
            # Whoever passes on what is heard may have to look whether he still may.
            self._broadcaster.nudge_all()

    async def turn(self) -> float:
        """Take one look, at what somebody listens to."""
        topics = self._broadcaster.topics
        if not topics:
            self._place, self._near, self._wide = None, Sight(), Sight()
            return IDLE
        await self._watch([topic.job_id for topic in topics if isinstance(topic, LogTopic)])
        job_ids = [topic.job_id for topic in topics if isinstance(topic, JobTopic)]
        if job_ids:
            self._tell_near(await self._database.run(feed.jobs_now(job_ids)))
        if any(isinstance(topic, QueueTopic | EveryTopic) for topic in topics):
            await self._look_wide()
        else:
            self._place = None
        self.looks += 1
        return LOOK_EVERY

    async def since(self, place: FeedPlace) -> list[News]:
        """Return what a listener missed that had heard everything up to *place*."""
        async with self._database.transaction() as connection:
            now, seen, is_all = await self._look(connection, place)
        news = [News(change, now) for change in Sight().news(seen)]
        return news if is_all else [News(Skipped(), now), *news]

    async def _watch(self, job_ids: Sequence[int]) -> None:
        now = monotonic()
        if job_ids and now >= self._watch_at:
            subscribed = self._subscribed
            begun = await self._database.run(log_chunks.watch_logs(job_ids, WATCHED_FOR))
            if subscribed == self._subscribed:
                self._watch_at = now + WATCH_EVERY
            # What came between the first look of a reader and now was told to nobody.
            self._tell_logged(LogTopic(job_id) for job_id in begun)

    def _tell_logged(self, topics: Iterable[LogTopic]) -> None:
        for one in topics:
            self._broadcaster.publish([one], News(Logged()))

    def _tell_near(self, seen: list[Change]) -> None:
        for change in self._near.news(seen):
            self._broadcaster.publish([JobTopic(change.job_id)], News(change))

    async def _look_wide(self) -> None:
        if self._place is None:
            self._place, self._wide = await self._database.run(feed.feed_place(LATE)), Sight()
            held: list[Change] = await self._database.run(feed.held_now(MOST_HELD))
            # Not what is new: streams that wait for this look have begun already.
            self._wide.news(change for change in held if change.at < self._place.moment - LATE)
        async with self._database.transaction() as connection:
            place, seen, is_all = await self._look(connection, self._place)
        self._place = place
        if not is_all:
            wide = [one for one in self._broadcaster.topics if isinstance(one, QueueTopic | EveryTopic)]
            self._broadcaster.publish(wide, News(Skipped(), place))
        self._broadcaster.publish_all(
            ((QueueTopic(change.queue), EveryTopic()), News(change, place))
            for change in self._wide.news(seen)
        )

    async def _look(self, connection: Connection, place: FeedPlace) -> tuple[FeedPlace, list[Change], bool]:
        """Return the place after *place*, what was seen from there on, and whether that is all there was."""
        run = self._database.run
        await run(feed.plan_by_time(TIMEOUT), connection)
        now = await run(feed.feed_place(LATE), connection)
        # In this order, since each sees a little more than the one before: what is told last is newest.
        looks = [
            await run(feed.returned_since(place.moment - LATE, MOST), connection),
            await run(feed.enqueued_since(place.job_id, MOST_NEW), connection),
            await run(feed.held_now(MOST_HELD), connection),
            await run(feed.ended_since(place.moment - LATE, MOST), connection),
        ]
        limits = (MOST, MOST_NEW, MOST_HELD, MOST)
        is_all = all(len(look) < limit for look, limit in zip(looks, limits, strict=True))
        return now, [change for look in looks for change in look], is_all
