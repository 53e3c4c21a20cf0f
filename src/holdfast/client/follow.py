"""Follows one job, one queue or everything, from where a reader was: what an event stream tells."""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Any

import msgspec

from holdfast.client.feed import LATE, EveryTopic, Feed, JobTopic, LogTopic, News, QueueTopic
from holdfast.client.log_reader import LogReader
from holdfast.errors import JobNotFound, OptionInvalid
from holdfast.model.change import Change
from holdfast.model.job import FINAL_STATES
from holdfast.model.log import BEGINNING, LogMark
from holdfast.rules.lines import LONGEST_CHARACTER, is_inside_character
from holdfast.runtime.broadcast import Listener
from holdfast.store import feed as statements
from holdfast.store.attempts import Fence
from holdfast.store.database import Database
from holdfast.store.feed import FeedPlace
from holdfast.store.log_chunks import LogChunk

# Where nothing happens, a reader is told so in this rest, which also finds readers that are gone; in seconds.
SILENCE = 15.0
# Who was away for longer hears no more of what it missed than that it missed it.
LONGEST_AWAY = timedelta(hours=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LogText(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an attempt wrote: *text* at byte *offset* of its stream, or so many bytes that are *missing*.

    Lines of a handler have a *level* and the stream ``handler``.  *cut* says that the stream ends there for
    good.
    """

    attempt: int
    stream: str
    offset: int
    at: datetime
    text: str = ""
    level: str | None = None
    missing: int = 0
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """One event: its *name*, its *data*, and the *id* from which a reader goes on who has heard it."""

    name: str
    data: Any
    id: str


DROPPED = "you fell behind and were dropped: connect again, and go on from the last id"
STOPPING = "the service stops: connect again, and go on from the last id"
AWAY = "the database cannot be reached: connect again, and go on from the last id"
SKIPPED = "more happened than is told: list the jobs to see how they stand"


class JobFollower:
    """Tells how a job stands at first, then what changes, and what it logs, until it has ended.

    None is told where nothing happens for 15 s.
    """

    def __init__(self, feed: Feed, database: Database, job_id: int, *, logs: bool, since: str | None) -> None:
        self._feed, self._database, self._reader = feed, database, LogReader(database)
        self._job_id, self._logs = job_id, logs
        self._mark = BEGINNING if since is None else LogMark.parse(since)
        self._decoders: dict[tuple[int, str], codecs.IncrementalDecoder] = {}

    async def check(self) -> None:
        """Raise `JobNotFound` where there is nothing to follow."""
        await self._standing()

    async def tell(self) -> AsyncGenerator[Told | None, None]:
        """Give one event after another."""
        topics = (JobTopic(self._job_id), LogTopic(self._job_id)) if self._logs else (JobTopic(self._job_id),)
        listener = self._feed.subscribe(*topics)
        try:
            async for told in self._heard(listener):
                yield told
        finally:
            self._feed.unsubscribe(listener)

    async def _heard(self, listener: Listener[News]) -> AsyncIterator[Told | None]:
        change = await self._standing()
        before: Change | None = None
        while True:
            # Logs first: what is told as ended has nothing more to say.
            if self._logs:
                async for text in self._logged():
                    yield text
            if change != before:
                yield Told("job", change, self._mark.text)
                before = change
            if change.state in FINAL_STATES:
                return
            await listener.wait(SILENCE)
            if listener.dropped:
                yield _dropped(self._feed, self._mark.text)
                return
            # News that change nothing must not hide that whoever passes them on has to look whether he may.
            nudged = listener.nudged
            if not (heard := listener.heard()) or nudged:
                yield None
            changes = [news.what for news in heard if isinstance(news.what, Change)]
            change = changes[-1] if changes else change

    async def _standing(self) -> Change:
        found = await self._database.run(statements.jobs_now([self._job_id]))
        if not found:
            raise JobNotFound(self._job_id)
        return found[0]

    async def _logged(self) -> AsyncIterator[Told]:
        while True:
            news = await self._reader.news(self._job_id, self._mark)
            if news.mark == self._mark:
                return
            self._mark = news.mark
            texts = [
                LogText(line.fence.attempt, "handler", line.byte_offset, line.at, line.line, line.level)
                for line in news.lines
            ]
            texts += [await self._text(chunk) for chunk in news.chunks]
            for nth, text in enumerate(texts, 1):
                # Only behind the last one of a page does the mark of the page hold.
                yield Told("log", text, self._mark.text if nth == len(texts) else "")

    async def _text(self, chunk: LogChunk) -> LogText:
        piece, decoder = chunk.piece, self._decoders.get((chunk.attempt, chunk.stream))
        if decoder is None:
            decoder = await self._decoder(chunk)
            self._decoders[chunk.attempt, chunk.stream] = decoder
        if piece.data is None:
            # A character that was cut by a gap will never be whole.
            text = decoder.decode(b"", final=True)
            decoder.reset()
        else:
            text = decoder.decode(piece.content())
        return LogText(
            chunk.attempt,
            chunk.stream,
            piece.byte_offset,
            chunk.at,
            text,
            missing=piece.length if piece.data is None else 0,
            cut=not piece.length,
        )

    async def _decoder(self, chunk: LogChunk) -> codecs.IncrementalDecoder:
        """Return a decoder for a stream from that piece on; it knows what is before it of a cut letter.

        Whoever had read as far as there was told of the part of a letter neither.
        """
        decoder, start = codecs.getincrementaldecoder("utf-8")("replace"), chunk.piece.byte_offset
        if is_inside_character(chunk.piece.content()):
            before = max(0, start - LONGEST_CHARACTER + 1)
            fence = Fence(self._job_id, chunk.attempt)
            span = await self._reader.span(fence, chunk.stream, before, start - before)
            if span is not None and span.start + len(span.data) == start:
                decoder.decode(span.data)
        return decoder


class WideFollower:
    """Tells what changes in one queue or in all, after what a reader missed who was away.

    A job's line tells how it stands, so that one told twice does no harm.
    """

    def __init__(self, feed: Feed, database: Database, queue: str | None, *, since: str | None) -> None:
        self._feed, self._database, self._queue = feed, database, queue
        self._since = None if since is None else read_place(since)

    async def tell(self) -> AsyncGenerator[Told | None, None]:
        """Give one event after another, None where nothing happens for 15 s."""
        listener = self._feed.subscribe(EveryTopic() if self._queue is None else QueueTopic(self._queue))
        try:
            place = await self._database.run(statements.feed_place(LATE))
            yield Told("begun", {}, place_text(self._since or place))
            if self._since is not None:
                async for missed in self._missed(self._since, place):
                    yield missed
            async for heard in self._heard(listener, place):
                yield heard
        finally:
            self._feed.unsubscribe(listener)

    async def _missed(self, since: FeedPlace, now: FeedPlace) -> AsyncIterator[Told]:
        if now.moment - since.moment > LONGEST_AWAY:
            yield Told("skipped", {"detail": SKIPPED}, place_text(now))
            return
        missed = await self._feed.since(since)
        mine = [
            one for one in missed if not isinstance(one.what, Change) or self._queue in (None, one.what.queue)
        ]
        for told in _told(mine):
            yield told

    async def _heard(self, listener: Listener[News], place: FeedPlace) -> AsyncIterator[Told | None]:
        while True:
            await listener.wait(SILENCE)
            if listener.dropped:
                yield _dropped(self._feed, place_text(place))
                return
            if not (heard := listener.heard()):
                yield None
            for told in _told(heard):
                yield told
            place = heard[-1].place or place if heard else place


def _told(news: Sequence[News]) -> Iterator[Told]:
    """Give an event for each; of those that one look has found only the last one has its place."""
    for one, following in zip_longest(news, news[1:]):
        is_last = following is None or following.place != one.place
        place = place_text(one.place) if is_last and one.place is not None else ""
        if isinstance(one.what, Change):
            yield Told("job", one.what, place)
        else:
            yield Told("skipped", {"detail": SKIPPED}, place)


def _dropped(feed: Feed, place: str) -> Told:
    return Told("dropped", {"detail": STOPPING if feed.is_over else DROPPED}, place)


def place_text(place: FeedPlace) -> str:
    """Return a place as it travels: `read_place` reads it."""
    return f"{(place.moment - EPOCH) // timedelta(microseconds=1)}-{place.job_id}"


def read_place(text: str) -> FeedPlace:
    """Read the text of a place; raises `OptionInvalid`."""
    moment, _, job_id = text.partition("-")
    if not (moment.isascii() and moment.isdigit() and job_id.isascii() and job_id.isdigit()):
        raise OptionInvalid("Last-Event-ID", text, "give the last id as it was told")
    if len(moment) > 17 or len(job_id) > 18:
        raise OptionInvalid("Last-Event-ID", text, "give the last id as it was told")
    return FeedPlace(EPOCH + timedelta(microseconds=int(moment)), int(job_id))
