"""What runners log arrives whole and once, or the record says what is missing."""

import asyncio
import gzip
import hashlib
from typing import Any

import pytest

from holdfast.errors import (
    AssignmentStale,
    InputInvalid,
    JobNotFound,
    LeaseLost,
    LogOffsetWrong,
    LogRefused,
    OptionInvalid,
    PayloadTooLarge,
)
from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Outcome, PutBack
from holdfast.runners.logs import LARGEST_BODY, LogIntake, LogPatch, LogPlace, LogTotal
from holdfast.store import attempts, log_chunks, workers
from holdfast.store.attempts import Fence, Returned
from holdfast.store.log_chunks import LogLimits, LogStream, StreamKey
from holdfast.testing import Clock
from tests.store.scene import Scene, fence


class Desk:
    """A held job, its key, and the intake under test."""

    def __init__(self, scene: Scene, job: ClaimedJob, worker_id: int, limits: LogLimits) -> None:
        self.scene, self.job = scene, job
        self.key = StreamKey(fence(job), "stdout", worker_id)
        self.intake = LogIntake(scene.db.database, limits)

    async def send(self, offset: int, body: bytes, **options: Any) -> LogPlace:
        """Append to the stream."""
        return await self.intake.append(self.key, LogPatch(offset, body, **options))

    async def close(self, written: bytes, *, size: int | None = None, gap: bool = False) -> LogPlace:
        """Close the stream with the sum of what was written."""
        sha256 = hashlib.sha256(written).hexdigest()
        total = LogTotal(len(written) if size is None else size, sha256, gap)
        return await self.intake.close(self.key, total)

    async def stored(self) -> bytes:
        """All bytes of the stream, a gap as so many question marks."""
        chunks = await self.scene.run(
            log_chunks.read_chunks(self.key.fence, self.key.stream, start=0, most=2**40)
        )
        return b"".join(
            b"?" * chunk.piece.length if chunk.piece.data is None else chunk.piece.content()
            for chunk in chunks
        )

    async def stream(self) -> LogStream:
        """How the stream stands."""
        (stream,) = await self.scene.run(log_chunks.job_streams(self.key.fence.job_id))
        return stream

    async def end(self, outcome: Outcome | None = None) -> None:
        """Let the attempt end as completed, or put its job back."""
        if outcome is None:
            await self.scene.complete(self.job)
        else:
            back = PutBack(outcome, 0, counts=False, reason="for a test")
            await self.scene.run(attempts.put_back_jobs([Returned(fence(self.job), back)]))


async def desk_of(scene: Scene, limits: LogLimits | None = None) -> Desk:
    """Claim a job and make ready to write its log."""
    worker_id = await scene.worker()
    return Desk(scene, await scene.one(worker_id), worker_id, limits or LogLimits())


@pytest.fixture
async def desk(scene: Scene) -> Desk:
    """A held job with the usual limits."""
    return await desk_of(scene)


async def test_pieces_follow_on_and_make_the_whole(desk: Desk) -> None:
    """Each answer is the offset that the server has then; closed with its sum, the stream is intact."""
    assert await desk.send(0, b"one\n") == LogPlace(4)
    assert await desk.send(4, b"two\n") == LogPlace(8)
    await desk.close(b"one\ntwo\n")
    stream = await desk.stream()
    assert await desk.stored() == b"one\ntwo\n"
    assert (stream.size, stream.total, stream.intact) == (8, 8, True)
    assert stream.closed_at is not None


async def test_a_piece_behind_the_end_is_told_the_offset(desk: Desk) -> None:
    """Nothing is written, and the error says where the stream goes on."""
    await desk.send(0, b"abc")
    with pytest.raises(LogOffsetWrong) as caught:
        await desk.send(5, b"fgh")
    assert caught.value.size == 3
    assert await desk.stored() == b"abc"


async def test_a_repeated_piece_is_accepted_and_not_doubled(desk: Desk) -> None:
    """A runner that did not hear the answer sends again; what is new in an overlap is appended."""
    await desk.send(0, b"abc")
    assert await desk.send(0, b"abc") == LogPlace(3)
    assert await desk.send(1, b"bcdef") == LogPlace(6)
    assert await desk.send(2, b"c") == LogPlace(6)
    assert await desk.stored() == b"abcdef"


async def test_a_repeat_with_other_bytes_is_refused(desk: Desk) -> None:
    """What is written stays written; the refusal says where they differ."""
    await desk.send(0, b"abc")
    with pytest.raises(LogRefused, match="other bytes"):
        await desk.send(1, b"Xcd")
    assert await desk.stored() == b"abc"


async def test_packed_pieces_are_kept_packed_and_read_unpacked(desk: Desk) -> None:
    """Gzip is checked, counted as what it unpacks to, and costs less to keep."""
    text = b"the same line again\n" * 5000
    assert await desk.send(0, gzip.compress(text), packed=True) == LogPlace(len(text))
    assert await desk.send(0, text[:100], packed=False) == LogPlace(len(text))
    assert await desk.send(len(text) - 6, b"again\nmore") == LogPlace(len(text) + 4)
    assert await desk.stored() == text + b"more"
    kept = await desk.scene.db.value("select octet_length(data) from holdfast.log_chunks order by id limit 1")
    assert kept < len(text) / 10


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (gzip.compress(bytes(LARGEST_BODY + 1)), PayloadTooLarge),
        (b"not gzip at all", InputInvalid),
        (gzip.compress(b"half of it")[:-5], InputInvalid),
        (gzip.compress(b"one") + gzip.compress(b"two"), InputInvalid),
    ],
    ids=["bomb", "junk", "half", "two"],
)
async def test_bad_gzip_is_refused(desk: Desk, body: bytes, error: type[Exception]) -> None:
    """A bomb is not unpacked past the bound, and what is no gzip is named so."""
    with pytest.raises(error):
        await desk.send(0, body, packed=True)
    assert await desk.stored() == b""


async def test_a_body_past_the_bound_is_refused(desk: Desk) -> None:
    """So is a stream that nobody knows, and an offset below zero."""
    with pytest.raises(PayloadTooLarge):
        await desk.send(0, bytes(LARGEST_BODY + 1))
    with pytest.raises(OptionInvalid):
        await desk.send(-1, b"a")
    with pytest.raises(OptionInvalid):
        await desk.intake.append(StreamKey(desk.key.fence, "stdin", 1), LogPatch(0, b"a"))


async def test_a_gap_is_marked(desk: Desk) -> None:
    """What a runner had to drop stands in the log as a gap of its length; its sum leaves it out."""
    await desk.send(0, b"head")
    assert await desk.send(4, b"", gap=100) == LogPlace(104)
    assert await desk.send(4, b"", gap=100) == LogPlace(104)
    await desk.send(104, b"tail")
    await desk.close(b"headtail", size=108)
    assert await desk.stored() == b"head" + b"?" * 100 + b"tail"
    stream = await desk.stream()
    assert (stream.size, stream.kept, stream.intact) == (108, 8, True)


async def test_a_gap_may_not_come_with_bytes(desk: Desk) -> None:
    """Nobody could tell which of them are lost."""
    with pytest.raises(InputInvalid, match="without a body"):
        await desk.send(0, b"x", gap=3)


async def test_a_stream_is_not_closed_while_bytes_are_missing(desk: Desk) -> None:
    """The rest is asked for; a runner that has lost it says so, and the gap is marked."""
    await desk.send(0, b"abc")
    with pytest.raises(LogOffsetWrong) as caught:
        await desk.close(b"abcde")
    assert caught.value.size == 3
    await desk.close(b"abc", size=5, gap=True)
    assert await desk.stored() == b"abc??"
    assert (await desk.stream()).intact is True


async def test_a_runner_that_does_not_know_how_much_has_arrived_makes_no_log_a_damaged_one(
    desk: Desk,
) -> None:
    """Its process ended between sending and hearing of it: the sum that it kept is of less than is here."""
    await desk.send(0, b"abcd")
    await desk.close(b"ab", size=5, gap=True)
    assert await desk.stored() == b"abcd?"
    assert (await desk.stream()).intact is None


async def test_a_sum_that_is_told_again_is_not_worked_out_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log may be long, and an end may be reported as often as its runner likes."""
    await desk.send(0, b"all of it")
    await desk.close(b"all of it")
    monkeypatch.setattr(log_chunks, "read_chunks", None)
    assert (await desk.close(b"all of it")).size == 9
    assert (await desk.stream()).intact is True


async def test_a_wrong_sum_is_remembered(desk: Desk) -> None:
    """The end of a job does not hang on it, but the record says that the log is not what was written."""
    await desk.send(0, b"abc")
    await desk.close(b"abd")
    assert (await desk.stream()).intact is False
    await desk.close(b"abc")
    assert (await desk.stream()).intact is True


async def test_a_sum_is_64_hexadecimal_digits(desk: Desk) -> None:
    """Anything else is named."""
    with pytest.raises(OptionInvalid, match="sha256"):
        await desk.intake.close(desk.key, LogTotal(0, "zz"))


async def test_a_closed_stream_takes_nothing_more(desk: Desk) -> None:
    """A repeat of its bytes is fine, more of them is refused."""
    await desk.send(0, b"abc")
    await desk.close(b"abc")
    assert await desk.send(0, b"abc") == LogPlace(3)
    with pytest.raises(LogRefused, match="closed"):
        await desk.send(3, b"d")
    assert await desk.stored() == b"abc"


async def test_a_log_is_cut_at_the_limit_of_its_job(scene: Scene) -> None:
    """The last byte that fits is kept, the cut is marked, and further pieces are answered but not kept."""
    desk = await desk_of(scene, LogLimits(job=10))
    other = StreamKey(desk.key.fence, "stderr", desk.key.worker_id)
    await desk.intake.append(other, LogPatch(0, b"1234"))
    assert await desk.send(0, gzip.compress(b"a" * 500), packed=True) == LogPlace(6, cut_at=6)
    assert await desk.send(6, b"more") == LogPlace(6, cut_at=6)
    assert await desk.send(500, b"more") == LogPlace(6, cut_at=6)
    assert await desk.intake.append(other, LogPatch(4, b"5")) == LogPlace(4, cut_at=4)
    assert await desk.stored() == b"aaaaaa"
    await desk.close(b"aaaaaa", size=504)
    cut = {one.stream: one for one in await scene.run(log_chunks.job_streams(desk.job.id))}
    assert (cut["stdout"].total, cut["stdout"].cut_at, cut["stdout"].intact) == (504, 6, True)


async def test_a_stream_that_was_cut_at_its_first_byte_lacks_nothing(scene: Scene) -> None:
    """Another one has used up the limit: nobody is asked to send what would be cut again."""
    desk = await desk_of(scene, LogLimits(job=4))
    await desk.send(0, b"12345")
    other = StreamKey(desk.key.fence, "stderr", desk.key.worker_id)
    assert (await desk.intake.append(other, LogPatch(0, b"12345"))).cut_at == 0
    total = LogTotal(5, hashlib.sha256(b"").hexdigest())
    assert await desk.intake.close(other, total) == LogPlace(0, cut_at=0)


async def test_only_the_worker_that_holds_the_attempt_writes(desk: Desk) -> None:
    """Another worker, another attempt and another job are refused, and leave nothing behind."""
    job_id, attempt = desk.key.fence
    other = await desk.scene.worker()
    for key in (
        StreamKey(desk.key.fence, "stdout", other),
        StreamKey(Fence(job_id, attempt + 1), "stdout", desk.key.worker_id),
        StreamKey(Fence(job_id + 1, attempt), "stdout", desk.key.worker_id),
    ):
        with pytest.raises((AssignmentStale, JobNotFound)):
            await desk.intake.append(key, LogPatch(0, b"x"))
        with pytest.raises((AssignmentStale, JobNotFound)):
            await desk.intake.close(key, LogTotal(0, hashlib.sha256().hexdigest()))
    assert await desk.scene.db.value("select count(*) from holdfast.log_streams") == 0


@pytest.mark.parametrize("outcome", [None, Outcome.RETRIED, Outcome.RELEASED])
async def test_the_rest_of_a_log_may_come_after_the_end(scene: Scene, outcome: Outcome | None) -> None:
    """Who ended an attempt may send what was under way, within the time and the bytes for it."""
    desk = await desk_of(scene, LogLimits(late_bytes=6, late_seconds=60))
    await desk.send(0, b"in time, ")
    await desk.end(outcome)
    assert await desk.send(9, b"late") == LogPlace(13)
    assert await desk.send(13, b"later") == LogPlace(15, cut_at=15)
    assert await desk.stored() == b"in time, latela"
    await Clock(scene.db).advance(61)
    with pytest.raises(LeaseLost):
        await desk.send(15, b"x")


@pytest.mark.parametrize("verb", ["send", "close"])
async def test_the_rest_of_a_log_may_come_while_the_end_is_written(scene: Scene, verb: str) -> None:
    """It has to wait for that, and then the job is not held any more: but it is this worker that ended it."""
    desk, ending = await desk_of(scene), await scene.session()
    await desk.send(0, b"in time")
    transaction = ending.transaction()
    await transaction.start()
    await scene.complete(desk.job, connection=ending)
    rest = asyncio.create_task(desk.close(b"in time") if verb == "close" else desk.send(7, b", late"))
    await scene.blocked()
    await transaction.commit()
    assert await rest == LogPlace(7 if verb == "close" else 13)


async def test_a_lost_attempt_says_nothing_more(desk: Desk) -> None:
    """What was taken from a runner has another holder, or will have: its log ends where it was lost."""
    await desk.send(0, b"before")
    await desk.scene.lose(desk.key.worker_id)
    await desk.scene.run(workers.rescue_jobs(await desk.scene.lead(), 10))
    with pytest.raises(LeaseLost):
        await desk.send(6, b"after")
    assert await desk.stored() == b"before"


async def test_pages_of_a_stream_overlap_nowhere(desk: Desk) -> None:
    """Read page by page from any byte, every piece is met once, the first one where the byte lies."""
    for offset in range(0, 100, 10):
        await desk.send(offset, bytes(range(offset, offset + 10)))
    for start in (0, 7, 55, 99, 100):
        offset, read = start, b""
        while page := await desk.scene.run(
            log_chunks.read_chunks(desk.key.fence, "stdout", start=offset, most=25)
        ):
            read += b"".join(chunk.piece.content() for chunk in page)
            assert page[0].piece.byte_offset <= offset < page[0].piece.end
            offset = page[-1].piece.end
        assert read == bytes(range(start - start % 10, 100))
