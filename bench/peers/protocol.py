"""What every adapter of a Python peer shares: the verbs, the jobs, the record of what was executed.

An adapter is a program, ``python -m bench.peers.NAME VERB LOAD``, that runs in the peer's own environment,
so this file and `load.py` need nothing but the standard library.  It says ``ready`` once it is connected,
begins when it reads ``go``, and a worker ends when it reads ``stop``.  What it has to say are JSON objects,
one per line of stdout.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from bench.peers.load import Load

PROGRESS_EVERY = 0.02


class Record:
    """Which jobs began, and when; in nanoseconds of the clock that all processes of a machine share."""

    __slots__ = ("began", "ended", "numbers")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.began: list[int] = []
        self.ended: list[tuple[int, int]] = []

    def begin(self, number: int) -> None:
        """Note that the handler of a job has begun."""
        self.began.append(time.monotonic_ns())
        self.numbers.append(number)

    def end(self, number: int) -> None:
        """Note that the handler of a job is done; only handlers that take time say so."""
        self.ended.append((number, time.monotonic_ns()))


Handle = Callable[[int], Awaitable[None]]


class Peer:
    """One queue under its public face, with a client of its own; an adapter fills in what its peer can do.

    *unfinished* is SQL that answers true as long as a job has not ended.  *bulk* is the largest batch that
    the peer's bulk enqueue is given, 0: everything at once.  *clones* are the rows that a job leaves behind,
    for the runner to multiply: table, key column, and the SQL of the key of the nth clone.  *asleep* and
    *completed* are SQL that counts the runs which wait, and those which ended well.
    """

    unfinished: str = "select false"
    asleep: str = "select 0"
    completed: str = "select 0"
    clones: ClassVar[tuple[tuple[str, str, str], ...]] = ()
    bulk: ClassVar[int] = 0

    def __init__(self, dsn: str, load: Load, record: Record) -> None:
        self.dsn, self.load, self.record = dsn, load, record

    async def setup(self) -> None:
        """Make the tables."""
        raise NotImplementedError

    async def open(self) -> None:
        """Connect what enqueues and works."""

    async def close(self) -> None:
        """Disconnect."""

    async def enqueue(self, numbers: Sequence[int]) -> None:
        """Enqueue jobs by the fastest way that the peer offers for many."""
        raise NotImplementedError

    async def insert(self, number: int) -> None:
        """Enqueue one job, committed on return."""
        raise NotImplementedError

    async def signal(self, numbers: Sequence[int]) -> None:
        """Send runs their signal, by the fastest way that the peer offers for many."""
        raise NotImplementedError

    async def work(self, stop: asyncio.Event) -> None:
        """Run jobs until *stop*."""
        raise NotImplementedError

    async def handle(self, number: int) -> None:
        """Do what a job of the kind asked for does."""
        self.record.begin(number)
        if self.load.kind == "ms":
            await asyncio.sleep(0.001)
            self.record.end(number)

    async def step(self, number: int, nth: int) -> None:
        """Do what a step of a run does: nothing, but it is noted."""
        self.record.begin(number * self.load.steps + nth)

    def handle_now(self, number: int) -> None:
        """Do the same as a plain function."""
        self.record.begin(number)


def say(event: str, **facts: Any) -> None:
    """Tell the runner something."""
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


def told(loop: asyncio.AbstractEventLoop) -> tuple[asyncio.Event, asyncio.Event]:
    """Return the events that the words ``go`` and ``stop`` on stdin set."""
    words = {"go": asyncio.Event(), "stop": asyncio.Event()}

    def listen() -> None:
        for line in sys.stdin:
            if (event := words.get(line.strip())) is not None:
                loop.call_soon_threadsafe(event.set)
        # Whoever started this program is gone.
        for event in words.values():
            loop.call_soon_threadsafe(event.set)

    threading.Thread(target=listen, daemon=True).start()
    return words["go"], words["stop"]


async def _enqueue(peer: Peer, stop: asyncio.Event) -> None:
    began = time.monotonic_ns()
    done = await (_stream if peer.load.rate else _fill)(peer, stop)
    say("enqueued", jobs=done, seconds=(time.monotonic_ns() - began) / 1e9)


async def _fill(peer: Peer, stop: asyncio.Event) -> int:
    done = 0
    for batch in peer.load.batches(peer.bulk):
        if stop.is_set():
            break
        await peer.enqueue(batch)
        done += len(batch)
    return done


async def _stream(peer: Peer, stop: asyncio.Event) -> int:
    load, done, began = peer.load, 0, time.monotonic()
    while done < load.jobs and not stop.is_set():
        batch = load.due(done, time.monotonic() - began)
        await peer.enqueue(batch)
        done += len(batch)
        await asyncio.sleep(max(0.0, began + done / load.rate - time.monotonic()))
    return done


async def _insert(peers: Sequence[Peer], stop: asyncio.Event) -> None:
    load, committed = peers[0].load, list[tuple[int, int]]()
    callers = [peer for peer in peers for _ in range(load.calls or 1)]
    waiting = iter(load.numbers())
    rests = random.Random(load.first)  # noqa: S311 - the same gaps for every peer

    async def insert(peer: Peer, number: int) -> None:
        await peer.insert(number)
        committed.append((number, time.monotonic_ns()))

    async def call(peer: Peer) -> None:
        for number in waiting:
            if stop.is_set():
                return
            await insert(peer, number)
            if load.gap_to:
                await asyncio.sleep(rests.uniform(load.gap_from, load.gap_to))

    if load.calls:
        # Connections are opened and statements made ready by one job of each, before the clock begins.
        await asyncio.gather(*map(insert, callers, waiting))
    first, began = len(committed), time.monotonic_ns()
    await asyncio.gather(*map(call, callers))
    seconds = (time.monotonic_ns() - began) / 1e9
    jobs = len(committed) - first
    say("inserted", jobs=jobs, seconds=seconds, committed=committed if load.latency else [])


async def _signal(peer: Peer, stop: asyncio.Event) -> None:
    for batch in peer.load.batches(peer.bulk):
        if not stop.is_set():
            await peer.signal(batch)
    say("signalled")


async def _work(peer: Peer, stop: asyncio.Event) -> None:
    record = peer.record
    reporting = asyncio.create_task(_report_progress(record))
    await peer.work(stop)
    reporting.cancel()
    with suppress(asyncio.CancelledError):
        await reporting
    say(
        "worked",
        numbers=record.numbers,
        first=min(record.began, default=0),
        last=max(record.began, default=0),
        began=record.began if peer.load.latency else [],
        ended=record.ended if peer.load.latency else [],
    )


async def _report_progress(record: Record) -> None:
    told_of = -1
    while True:
        if (done := len(record.numbers)) != told_of:
            told_of = done
            say("progress", executed=done)
        await asyncio.sleep(PROGRESS_EVERY)


VERBS = {"enqueue": _enqueue, "signal": _signal, "work": _work}


async def _run(kind: type[Peer], verb: str, load: Load) -> None:
    peers = _peers(kind, verb, load)
    if verb == "setup":
        await peers[0].setup()
        say("done")
        return
    go, stop = told(asyncio.get_running_loop())
    for peer in peers:
        await peer.open()
    _say_ready(peers[0])
    await go.wait()
    await (_insert(peers, stop) if verb == "insert" else VERBS[verb](peers[0], stop))
    for peer in peers:
        await peer.close()


def _peers(kind: type[Peer], verb: str, load: Load) -> list[Peer]:
    # Only those who enqueue one by one are several: clients that share nothing but their process.
    record, count = Record(), load.clients if verb == "insert" else 1
    return [kind(os.environ["BENCH_DSN"], load, record) for _ in range(count)]


def _say_ready(peer: Peer) -> None:
    say(
        "ready",
        unfinished=peer.unfinished,
        clones=peer.clones,
        asleep=peer.asleep,
        completed=peer.completed,
    )


def main(kind: type[Peer]) -> None:
    """Run one verb of an adapter as the command line asks."""
    verb, load = sys.argv[1], Load.parse(sys.argv[2])
    try:
        import uvloop
    except ImportError:
        asyncio.run(_run(kind, verb, load))
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(kind, verb, load))
    # What a peer left running must not keep the program alive: everything was said.
    sys.stdout.flush()
    os._exit(0)
