"""Whatever a network makes of a runner's requests, what is stored is a prefix of what the runner wrote."""

import asyncio
import gzip
import hashlib
import random
from dataclasses import dataclass

from holdfast.errors import LogOffsetWrong
from holdfast.runners.logs import LogIntake, LogPatch, LogTotal
from holdfast.store import log_chunks
from holdfast.store.log_chunks import LogLimits, StreamKey
from tests.store.scene import Scene, fence

EXAMPLES = 60
REQUESTS = 25


@dataclass
class Wire:
    """A network that loses, repeats and reorders requests, and a runner that writes *text* through it."""

    chance: random.Random
    text: bytes
    # Spans that the runner had to drop, which it never sends.
    gaps: tuple[tuple[int, int], ...]

    def requests(self, size: int) -> list[LogPatch]:
        """A few requests that may arrive next, where the server has *size* bytes."""
        made = [self._request(size) for _ in range(self.chance.randint(1, 3))]
        made += [self.chance.choice(made)] * self.chance.randint(0, 2)
        self.chance.shuffle(made)
        return made

    def _request(self, size: int) -> LogPatch:
        # From where the server is, from before, or from too far ahead.
        offset = max(0, min(len(self.text), size + self.chance.choice([0, 0, 0, -1, -7, -40, 1, 30])))
        for start, end in self.gaps:
            if start <= offset < end:
                return LogPatch(offset, b"", gap=end - offset)
        stop = min([start for start, _ in self.gaps if start > offset], default=len(self.text))
        body = self.text[offset : min(stop, offset + self.chance.randint(0, 60))]
        packed = bool(body) and self.chance.random() < 0.5
        return LogPatch(offset, gzip.compress(body) if packed else body, packed=packed)


def wire(seed: int) -> Wire:
    """A wire of that seed, with up to two gaps."""
    chance = random.Random(seed)  # noqa: S311 - makes examples, guards nothing
    text = bytes(chance.choice(b"ab\n") for _ in range(chance.randint(0, 400)))
    ends = sorted(chance.sample(range(len(text)), 4)) if len(text) > 50 else []
    gaps = ((ends[0], ends[1]), (ends[2], ends[3])) if ends and chance.random() < 0.7 else ()
    return Wire(chance, text, tuple((a, b) for a, b in gaps if a < b))


async def stored(scene: Scene, key: StreamKey) -> bytes:
    """What the server has; where it knows of a gap, question marks."""
    chunks = await scene.run(log_chunks.read_chunks(key.fence, key.stream, start=0, most=2**30))
    parts, end = [], 0
    for chunk in chunks:
        assert chunk.piece.byte_offset == end, "pieces overlap, or leave a hole that nobody told"
        parts.append(b"?" * chunk.piece.length if chunk.piece.data is None else chunk.piece.content())
        end = chunk.piece.end
    return b"".join(parts)


def expected(line: Wire) -> bytes:
    """All of the text, with its gaps."""
    text = bytearray(line.text)
    for start, end in line.gaps:
        text[start:end] = b"?" * (end - start)
    return bytes(text)


async def test_what_is_stored_is_a_prefix_whatever_the_network_does(scene: Scene) -> None:
    """Lost, repeated, reordered and overlapping requests; at last the whole arrives, with its sum."""
    worker_id = await scene.worker()
    await scene.enqueue(EXAMPLES)
    intake = LogIntake(scene.db.database)
    for seed, job in enumerate(await scene.claim(worker_id, limit=EXAMPLES)):
        line, key, size = wire(seed), StreamKey(fence(job), "stdout", worker_id), 0
        whole, found = expected(line), b""
        for _ in range(REQUESTS):
            for patch in line.requests(size):
                # Refused is only what begins behind the end, and the refusal tells where that is.
                try:
                    size = (await intake.append(key, patch)).size
                except LogOffsetWrong as error:
                    size = error.size
                assert size >= min(patch.offset, len(found)), f"seed {seed}"
            found = await stored(scene, key)
            assert found == whole[: len(found)], f"seed {seed}"
        await finish(intake, key, line, size)
        assert await stored(scene, key) == whole, f"seed {seed}"
        [stream] = await scene.run(log_chunks.job_streams(job.id))
        assert (stream.intact, stream.size) == (True, len(whole)), f"seed {seed}"


async def finish(intake: LogIntake, key: StreamKey, line: Wire, size: int) -> None:
    """Send the rest in order, and close the stream."""
    while size < len(line.text):
        gap = next((end - size for start, end in line.gaps if start <= size < end), 0)
        stop = min([start for start, _ in line.gaps if start > size], default=len(line.text))
        patch = LogPatch(size, b"", gap=gap) if gap else LogPatch(size, line.text[size:stop])
        size = (await intake.append(key, patch)).size
    sent = expected(line).replace(b"?", b"")
    await intake.close(key, LogTotal(len(line.text), hashlib.sha256(sent).hexdigest()))


async def test_streams_that_race_share_the_limit_exactly(scene: Scene) -> None:
    """What is left for the job goes to whoever comes first, to the last byte."""
    worker_id = await scene.worker()
    for seed in range(10):
        chance = random.Random(seed)  # noqa: S311 - as above
        job = await scene.one(worker_id)
        intake = LogIntake(scene.db.database, LogLimits(job=100))
        keys = [StreamKey(fence(job), stream, worker_id) for stream in ("stdout", "stderr", "system")]
        bodies = [b"x" * chance.randint(20, 90) for _ in keys]
        await asyncio.gather(
            *(intake.append(key, LogPatch(0, body)) for key, body in zip(keys, bodies, strict=True))
        )
        streams = await scene.run(log_chunks.job_streams(job.id))
        wanted = sum(map(len, bodies))
        assert sum(one.kept for one in streams) == min(100, wanted), f"seed {seed}"
        assert any(one.cut_at is not None for one in streams) is (wanted > 100), f"seed {seed}"
