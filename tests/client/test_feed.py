"""The feed tells how jobs stand, to whoever listens, and asks nothing while nobody does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.client import follow
from holdfast.client.feed import (
    EveryTopic,
    Feed,
    JobTopic,
    Logged,
    LogTopic,
    News,
    QueueTopic,
    Skipped,
    Topic,
)
from holdfast.client.follow import JobFollower, WideFollower
from holdfast.client.operator import Operator
from holdfast.errors import DatabaseUnavailable
from holdfast.model.change import Change
from holdfast.model.job import NewJob
from holdfast.model.outcome import Outcome, PutBack
from holdfast.runtime.broadcast import Listener
from holdfast.runtime.events import Events
from holdfast.store import attempts, jobs, log_chunks
from holdfast.store import feed as feed_store
from holdfast.store.attempts import Returned
from holdfast.store.database import Database
from holdfast.store.listen import Notifications
from holdfast.store.log_chunks import Arrival, LogLimits, Piece, StreamKey
from holdfast.store.sqlfile import rendered
from holdfast.store.statement import Statement
from tests.store.scene import Scene, fence


class Ear:
    """Listens, and keeps what it has heard."""

    def __init__(self, feed: Feed, *topics: Topic) -> None:
        self.feed, self.listener, self.looks = feed, feed.subscribe(*topics), feed.looks
        self.news: list[News] = []

    @property
    def states(self) -> list[tuple[int, str]]:
        """The jobs and states that were told, in order."""
        return [(one.what.job_id, one.what.state) for one in self.news if isinstance(one.what, Change)]

    async def hear(self, job_id: int, state: str) -> None:
        """Wait until a job is told in a state."""
        async with asyncio.timeout(20):
            while (job_id, state) not in self.states:
                await self.listener.wait(20)
                self.news += self.listener.heard()


@pytest.fixture
async def feed(scene: Scene) -> AsyncIterator[Feed]:
    """A feed that runs and hears notifications."""
    events = Events()
    feed, notifications = Feed(scene.db.database, events), Notifications(scene.db.database, events)
    notifications.subscribe(feed.notified)
    await notifications.start()
    await feed.start()
    yield feed
    await feed.stop()
    await notifications.stop()


async def settled(ear: Ear) -> None:
    """Wait until the feed has looked for this ear, so that what happens from now on is news."""
    async with asyncio.timeout(20):
        while ear.feed.looks == ear.looks:  # noqa: ASYNC110 - a count has no event
            await asyncio.sleep(0.01)


async def test_a_job_is_told_from_its_enqueue_to_its_end(scene: Scene, feed: Feed) -> None:
    """Whoever listens to its queue, or to everything, hears each state; another queue hears nothing."""
    everything, mine, other = (
        Ear(feed, EveryTopic()),
        Ear(feed, QueueTopic("default")),
        Ear(feed, QueueTopic("x")),
    )
    await settled(everything)
    (job_id,) = await scene.enqueue()
    await everything.hear(job_id, "available")
    (job,) = await scene.claim(await scene.worker())
    await everything.hear(job_id, "running")
    await scene.complete(job)
    for ear in (everything, mine):
        await ear.hear(job_id, "completed")
        assert ear.states == [(job_id, "available"), (job_id, "running"), (job_id, "completed")]
    assert other.listener.heard() == []


async def test_a_job_whose_enqueue_is_committed_late_is_told(scene: Scene, feed: Feed) -> None:
    """Its id is older than that of a job which was told before it could be seen."""
    ear = Ear(feed, EveryTopic())
    await settled(ear)
    slow = NewJob(kind="slow", args="{}")
    async with scene.db.database.transaction() as connection:
        [handle] = await scene.db.database.run(jobs.enqueue_jobs([slow]), connection)
        (newer,) = await scene.enqueue()
        assert newer > handle.id
        await ear.hear(newer, "available")
    await ear.hear(handle.id, "available")
    # Who comes back from where it was before the commit hears of it as well.
    place = next(one.place for one in ear.news if isinstance(one.what, Change) and one.what.job_id == newer)
    assert place is not None
    assert handle.id in [one.what.job_id for one in await feed.since(place) if isinstance(one.what, Change)]


async def test_many_changes_of_one_look_drop_nobody_who_keeps_up(scene: Scene, feed: Feed) -> None:
    """However many jobs come at once, a listener that had heard all before hears each of them."""
    ear = Ear(feed, QueueTopic("default"))
    await settled(ear)
    job_ids = await scene.enqueue(1000)
    await ear.hear(job_ids[-1], "available")
    assert [job_id for job_id, _ in ear.states] == job_ids


async def test_one_job_is_told_with_its_progress(scene: Scene, feed: Feed) -> None:
    """The first look tells how it stands, later ones what has changed, in few digits."""
    job = await scene.one()
    ear = Ear(feed, JobTopic(job.id))
    await ear.hear(job.id, "running")
    await scene.run(attempts.report_progress(fence(job), 0.1, "a tenth"))
    assert [one.progress for one in await scene.run(feed_store.jobs_now([job.id]))] == [0.1]
    await Operator(scene.db.database, "me").jobs.cancel(job.id)
    await scene.complete(job)
    await ear.hear(job.id, "completed")
    assert all(one.what.job_id == job.id for one in ear.news if isinstance(one.what, Change))


async def test_a_job_that_goes_on_is_told_with_its_last_outcome(scene: Scene, feed: Feed) -> None:
    """A retry is seen even by who never saw the attempt."""
    ear = Ear(feed, EveryTopic())
    await settled(ear)
    job = await scene.one()
    back = PutBack(Outcome.RETRIED, 3600, counts=True, reason="it broke")
    await scene.run(attempts.put_back_jobs([Returned(fence(job), back)]))
    await ear.hear(job.id, "scheduled")
    told = [one.what for one in ear.news if isinstance(one.what, Change) and one.what.state == "scheduled"]
    assert (told[0].failures, told[0].attempt) == (1, 1)


async def test_who_was_away_hears_what_ended_meanwhile(scene: Scene, feed: Feed) -> None:
    """From its place on it is told each end once, and how the others stand now."""
    ear = Ear(feed, EveryTopic())
    await settled(ear)
    first = await scene.one()
    await scene.complete(first)
    await ear.hear(first.id, "completed")
    place = ear.news[-1].place
    assert place is not None
    gone, held = await scene.one(), await scene.one()
    await scene.complete(gone)
    (waiting,) = await scene.enqueue()
    missed = [one.what for one in await feed.since(place) if isinstance(one.what, Change)]
    states = {change.job_id: change.state for change in missed if change.job_id != first.id}
    assert states == {gone.id: "completed", held.id: "running", waiting: "available"}


async def test_too_much_at_once_is_told_as_skipped(
    scene: Scene, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A feed does not pretend that it has told everything."""
    monkeypatch.setattr("holdfast.client.feed.MOST_NEW", 3)
    ear = Ear(feed, QueueTopic("default"))
    await settled(ear)
    job_ids = await scene.enqueue(10)
    await ear.hear(job_ids[0], "available")
    assert any(isinstance(one.what, Skipped) for one in ear.news)


async def test_nobody_listens_and_nothing_is_asked(scene: Scene, feed: Feed) -> None:
    """The last one to leave puts the feed to rest; the next one wakes it."""
    ear = Ear(feed, EveryTopic())
    await settled(ear)
    feed.unsubscribe(ear.listener)
    assert await feed.turn() > timedelta(minutes=10).total_seconds()
    looks = feed.looks
    assert await feed.turn() > timedelta(minutes=10).total_seconds()
    assert feed.looks == looks
    late = Ear(feed, EveryTopic())
    await settled(late)
    job = await scene.one()
    await late.hear(job.id, "running")


async def test_a_log_line_is_told_at_once(scene: Scene, feed: Feed) -> None:
    """While a job is followed the server notifies of its logs, and of no other job's."""
    followed, other = await scene.one(), await scene.one()
    listener: Listener[News] = feed.subscribe(LogTopic(followed.id))
    # The first time it is told that the server notifies from now on.
    for logging in ((), (other, followed)):
        for job in logging:
            await log(scene, job)
        assert await listener.wait(20)
        assert [one.what for one in listener.heard()] == [Logged()]


async def log(scene: Scene, job: Any) -> None:
    """Log something for a held job."""
    worker = await scene.db.value("select worker_id from holdfast.live_jobs where job_id = $1", job.id)
    key = StreamKey(fence(job), "stdout", worker)
    await scene.run(log_chunks.append_chunks([Arrival(key, Piece(0, 2, b"hi"))], LogLimits()))


async def test_what_is_logged_before_the_server_notifies_of_it_is_told(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the job itself is no news, as to one who listens to it already, without its log."""
    monkeypatch.setattr(follow, "SILENCE", 3600.0)
    feed, job = Feed(scene.db.database, Events()), await scene.one()
    feed.subscribe(JobTopic(job.id))
    await feed.turn()
    told = JobFollower(feed, scene.db.database, job.id, logs=True, since=None).tell()
    async with aclosing(told), asyncio.timeout(20):
        first = await anext(told)
        await log(scene, job)
        await feed.turn()
        heard = await anext(told)
    assert [one.name for one in (first, heard) if one is not None] == ["job", "log"]
    # The server notifies already: whoever comes later misses nothing.
    later = feed.subscribe(LogTopic(job.id))
    await feed.turn()
    assert later.heard() == []


async def test_logs_are_watched_for_as_long_as_somebody_follows(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is asked again in time, by a clock that nobody sets back."""
    feed, now, asked, run = Feed(scene.db.database, Events()), 1000.0, list[str](), Database.run
    feed.subscribe(LogTopic((await scene.one()).id))

    async def counting(database: Database, statement: Statement[Any], *rest: Any) -> Any:
        asked.extend([statement.name] * (statement.name == "watch_logs"))
        return await run(database, statement, *rest)

    monkeypatch.setattr(Database, "run", counting)
    monkeypatch.setattr("holdfast.client.feed.monotonic", lambda: now, raising=False)
    for now, times in ((1000.0, 1), (1019.0, 1), (1020.0, 2), (1021.0, 2)):  # noqa: B007 - the clock reads it
        await feed.turn()
        assert len(asked) == times


async def test_a_look_finds_what_ended_by_its_time(scene: Scene) -> None:
    """It reads the last pages of history, not all of a day."""
    async with scene.db.database.transaction() as connection:
        await scene.run(feed_store.plan_by_time("10s"), connection)
        for statement in (
            feed_store.ended_since(datetime.now(UTC), 10),
            feed_store.returned_since(datetime.now(UTC), 10),
        ):
            text = "explain " + rendered(statement.text, scene.db.schema)
            plan = "\n".join(row[0] for row in await connection.fetch(text, *statement.parameters))
            assert "_at_idx" in plan or "_time" in plan, plan
            assert "Seq Scan on attempts" not in plan
            assert "Seq Scan on finished" not in plan


async def test_logs_are_watched_at_the_next_look_where_the_database_was_away(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody would notify of them for twenty seconds."""
    feed, run, failed = Feed(scene.db.database, Events()), Database.run, list[str]()
    [job_id] = await scene.enqueue()
    feed.subscribe(LogTopic(job_id))

    async def away_once(database: Database, statement: Statement[Any], *rest: Any) -> Any:
        if statement.name == "watch_logs" and not failed:
            failed.append(statement.name)
            raise DatabaseUnavailable("it is away")
        return await run(database, statement, *rest)

    monkeypatch.setattr(Database, "run", away_once)
    with pytest.raises(DatabaseUnavailable):
        await feed.turn()
    await feed.turn()
    assert await scene.db.value("select count(*) from holdfast.log_watches") == 1


async def test_who_follows_a_job_hears_a_nudge_beside_news_that_change_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever passes on what is heard has to look whether he still may, be there nothing to pass on."""
    monkeypatch.setattr(follow, "SILENCE", 3600.0)
    feed = Feed(scene.db.database, Events())
    [job_id] = await scene.enqueue()
    told = JobFollower(feed, scene.db.database, job_id, logs=False, since=None).tell()
    async with aclosing(told), asyncio.timeout(20):
        first = await anext(told)
        assert first is not None
        # The first look finds what is told already, and a token is revoked at that moment.
        await feed.turn()
        feed.notified("tokens", "")
        assert await anext(told) is None


async def test_who_comes_when_the_feed_is_over_is_told_so(scene: Scene) -> None:
    """A reader that connects again at once meets the service that stops, and would hold it up."""
    feed = Feed(scene.db.database, Events())
    [job_id] = await scene.enqueue()
    feed.release()
    followers = (
        JobFollower(feed, scene.db.database, job_id, logs=True, since=None),
        WideFollower(feed, scene.db.database, None, since=None),
    )
    for follower in followers:
        async with aclosing(follower.tell()) as told, asyncio.timeout(10):
            names = [one.name for _ in range(2) if (one := await anext(told)) is not None]
        assert names[-1] == "dropped"


async def test_a_job_that_logs_much_drops_no_reader(scene: Scene) -> None:
    """Its log is read from the database, at the reader's own pace: that there is more is heard once."""
    feed = Feed(scene.db.database, Events())
    [job_id] = await scene.enqueue()
    listener = feed.subscribe(JobTopic(job_id), LogTopic(job_id))
    for _ in range(1000):
        feed.notified("log", str(job_id))
    assert not listener.dropped
    assert listener.heard() == [News(Logged())]


async def test_what_happens_between_the_beginning_of_a_stream_and_the_first_look_is_told(
    scene: Scene,
) -> None:
    """A reader that was told that its stream has begun may act at once, and waits to hear of it."""
    feed = Feed(scene.db.database, Events())
    long_held = await scene.one()
    await scene.db.fetch("update holdfast.live_jobs set started_at = started_at - interval '1 hour'")
    async with aclosing(WideFollower(feed, scene.db.database, None, since=None).tell()) as told:
        begun = await anext(told)
        assert begun is not None
        assert begun.name == "begun"
        worker = await scene.worker()
        held, (waiting,) = await scene.one(worker), await scene.enqueue()
        await feed.turn()
        heard = [await anext(told) for _ in range(2)]
    states = {one.data.job_id: one.data.state for one in heard if one is not None}
    assert states == {held.id: "running", waiting: "available"}
    assert long_held.id not in states
