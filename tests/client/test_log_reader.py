"""Logs are read page by page, from any mark on, as the lines they are."""

import gzip
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client import log_reader
from holdfast.client.log_reader import LogReader
from holdfast.errors import JobNotFound, OptionInvalid
from holdfast.model.job import ClaimedJob
from holdfast.model.log import BEGINNING, LogMark
from holdfast.runners.logs import LogIntake, LogPatch
from holdfast.store.attempts import Fence
from holdfast.store.log_chunks import LogLimits, StreamKey
from holdfast.store.logs import LogLine
from tests.store.scene import Scene, fence

CUT = "… log cut here: the job may log no more …"


class Desk:
    """A held job that logs, and who reads it."""

    def __init__(self, scene: Scene, job: ClaimedJob, worker_id: int, job_limit: int) -> None:
        self.scene, self.job, self.worker_id = scene, job, worker_id
        self.intake = LogIntake(scene.db.database, LogLimits(job=job_limit))
        self.reader = LogReader(scene.db.database)
        self.sizes: dict[str, int] = {}

    async def write(self, text: str, stream: str = "stdout", *, gap: int = 0) -> None:
        """Log something, or lose so many bytes."""
        offset, body = self.sizes.get(stream, 0), gzip.compress(text.encode()) if text else b""
        key = StreamKey(fence(self.job), stream, self.worker_id)
        await self.intake.append(key, LogPatch(offset, body, packed=bool(text), gap=gap))
        self.sizes[stream] = offset + len(text.encode()) + gap

    async def read(self, after: LogMark = BEGINNING) -> tuple[list[str], LogMark]:
        """The lines after a mark, and the mark behind them, which travels as text."""
        page = await self.reader.page(self.job.id, after)
        return texts(page.lines), LogMark.parse(page.mark.text)


def texts(lines: Sequence[LogLine]) -> list[str]:
    """The streams and texts of lines."""
    return [f"{line.level}: {line.line}" for line in lines]


@pytest.fixture
async def desk(scene: Scene) -> Desk:
    """A held job that may log a thousand bytes."""
    worker_id = await scene.worker()
    return Desk(scene, await scene.one(worker_id), worker_id, 1000)


async def test_lines_are_whole_however_they_came(desk: Desk) -> None:
    """A line without an end is kept until it has one; streams do not get into each other's lines."""
    await desk.write("one\ntw")
    lines, mark = await desk.read()
    assert lines == ["stdout: one"]
    await desk.write("oops\nhal", "stderr")
    await desk.write("o\nthr")
    lines, mark = await desk.read(mark)
    assert lines == ["stderr: oops", "stdout: two"]
    await desk.write("f\n", "stderr")
    lines, mark = await desk.read(mark)
    assert lines == ["stderr: half"]
    assert (await desk.read(mark))[0] == []
    await desk.scene.complete(desk.job)
    lines, mark = await desk.read(mark)
    assert lines == ["stdout: thr"]
    assert (await desk.read(mark))[0] == []


@pytest.mark.parametrize("pages", [4, 1])
async def test_a_line_without_an_end_keeps_nobody_from_reading_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    """More may come behind it than is read at once; where it is too much the line is told as it is."""
    monkeypatch.setattr(log_reader, "MOST_PAGES", pages)
    desk = Desk(scene, await scene.one(worker_id := await scene.worker()), worker_id, 10_000)
    await desk.write("half", "stderr")
    for n in range(600):
        await desk.write(f"{n}\n")
    lines, mark = await desk.read()
    while (page := await desk.read(mark)) != ([], mark):
        lines, mark = lines + page[0], page[1]
    assert [line for line in lines if line.startswith("stdout")] == [f"stdout: {n}" for n in range(600)]
    await desk.write(" done\n", "stderr")
    assert (await desk.read(mark))[0] == ["stderr: half done" if pages > 1 else "stderr:  done"]


async def test_gaps_and_cuts_are_lines_of_their_own(desk: Desk) -> None:
    """Each is told once, where it is, and ends the line before it."""
    await desk.write("before")
    await desk.write("", gap=1234)
    await desk.write("after\nun")
    lines, mark = await desk.read()
    assert lines == ["stdout: before", "stdout: … 1,234 bytes are missing here …", "stdout: after"]
    await desk.write("x" * 2000)
    await desk.write("more", "stderr")
    lines, mark = await desk.read(mark)
    assert lines == ["stdout: un" + "x" * 986, f"stdout: {CUT}", f"stderr: {CUT}"]
    assert (await desk.read(mark))[0] == []


async def test_the_last_lines_are_a_page(desk: Desk) -> None:
    """They end where following goes on."""
    await desk.write("".join(f"{n}\n" for n in range(10)) + "ten")
    page = await desk.reader.last(desk.job.id, 3)
    assert texts(page.lines) == ["stdout: 7", "stdout: 8", "stdout: 9"]
    await desk.write("th\nrest")
    assert (await desk.read(page.mark))[0] == ["stdout: tenth"]
    await desk.scene.complete(desk.job)
    page = await desk.reader.last(desk.job.id, 1)
    assert (page.ended, texts(page.lines)) == (True, ["stdout: rest"])
    assert (await desk.read(page.mark))[0] == []


async def test_a_span_ends_at_a_gap_and_the_next_one_tells_it(desk: Desk) -> None:
    """Bytes are exact from any offset on, across pieces."""
    await desk.write("0123")
    await desk.write("4567")
    await desk.write("", gap=100)
    await desk.write("tail")
    fenced = fence(desk.job)
    spans = [await desk.reader.span(fenced, "stdout", start, 100) for start in (2, 8, 50, 108, 112)]
    told = [(span.start, span.data, span.gap, span.end) for span in spans if span is not None]
    assert told == [
        (2, b"234567", 0, 8),
        (8, b"", 100, 108),
        (50, b"", 58, 108),
        (108, b"tail", 0, 112),
        (112, b"", 0, 112),
    ]
    short = await desk.reader.span(fenced, "stdout", 1, 2)
    assert short is not None
    assert short.data == b"12"
    assert await desk.reader.span(fenced, "stderr") is None
    assert await desk.reader.span(Fence(desk.job.id, 9), "stdout") is None


async def test_what_was_pruned_is_a_gap(desk: Desk) -> None:
    """Its day is gone, the size of the stream says that there was more."""
    await desk.write("old\n")
    await desk.scene.db.fetch("delete from holdfast.log_chunks")
    await desk.write("new\n")
    span = await desk.reader.span(fence(desk.job), "stdout")
    assert span is not None
    assert (span.data, span.gap, span.end) == (b"", 4, 4)


async def test_a_job_that_never_was_has_no_log(desk: Desk) -> None:
    """It is not found, be it read or followed."""
    with pytest.raises(JobNotFound):
        await desk.reader.page(999)
    with pytest.raises(JobNotFound):
        await desk.reader.last(999, 1)


NUMBER = st.integers(0, 10**9)
TOLD = st.lists(st.tuples(NUMBER, st.sampled_from(["stdout", "stderr"]), NUMBER), max_size=4)


@given(NUMBER, st.integers(-1, 10**9), NUMBER, TOLD)
def test_a_mark_is_read_as_it_was_written(
    attempt: int, byte: int, piece: int, told: list[tuple[int, str, int]]
) -> None:
    """It may travel in a link."""
    mark = LogMark(attempt, byte, piece, tuple(told))
    assert LogMark.parse(mark.text) == mark


@pytest.mark.parametrize(
    "text", ["", "1.2", "1.2.3,", "a.b.c", "1.2.3,4.stdin.5", "9" * 30 + ".1.1", "\uff11.2.3"]
)
def test_junk_is_no_mark(text: str) -> None:
    """It is refused by name."""
    with pytest.raises(OptionInvalid, match="mark"):
        LogMark.parse(text)
