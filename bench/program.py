"""One run of an adapter: started, told when to begin and when to stop, and listened to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import psutil

from bench import environments
from bench.catalogue import Contestant
from bench.environments import HOME
from bench.peers.load import Load

# How long an answer may take, and how long nothing may happen while jobs are left, in seconds.
PATIENCE = 900.0
LONGEST_SILENCE = 60.0
# How long an adapter that has said everything may take to disconnect.
LONGEST_GOODBYE = 30.0
# A worker says at its end which jobs it executed, on one line.
LONGEST_LINE = 1 << 28
# What an adapter says at the end of each verb.
ANSWERS = {
    "setup": "done",
    "enqueue": "enqueued",
    "insert": "inserted",
    "signal": "signalled",
    "work": "worked",
}

Message = dict[str, Any]


class AdapterFailed(Exception):
    """An adapter broke or fell silent; the message has its last words."""


class Program:
    """An adapter at work on one verb.  Use it as ``async with Program(...)``; it is ready inside.

    *patience* is how long an answer may take, in seconds.
    """

    def __init__(
        self, peer: Contestant, dsn: str, verb: str, load: Load, *, patience: float = PATIENCE
    ) -> None:
        self._peer, self._dsn, self._verb, self._load, self._patience = peer, dsn, verb, load, patience
        self._heard: dict[str, asyncio.Future[Message]] = {}
        self._errors: list[str] = []
        self.executed = 0
        self.progressed: Callable[[], None] = lambda: None
        self.unfinished = self.asleep = self.completed = ""
        self.clones: list[tuple[str, str, str]] = []

    async def __aenter__(self) -> Self:
        load = msgspec.json.encode(asdict(self._load)).decode()
        environment = environments.variables(self._peer) | {"BENCH_DSN": self._dsn}
        self._process = await asyncio.create_subprocess_exec(
            *environments.command(self._peer),
            self._verb,
            load,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd=HOME.parent,
            limit=LONGEST_LINE,
        )
        self._listeners = [asyncio.create_task(self._listen()), asyncio.create_task(self._listen_to_errors())]
        if self._verb != "setup":
            ready = await self._hear_ready()
            self.unfinished, self.clones = ready["unfinished"], ready["clones"]
            # An adapter that runs no durable runs, as those in JavaScript, says nothing about them.
            self.asleep, self.completed = ready.get("asleep", ""), ready.get("completed", "")
        return self

    async def _hear_ready(self) -> Message:
        # Whoever does not get ready must not go on beside those who are measured next.
        async with AsyncExitStack() as undo:
            undo.push_async_exit(self)
            ready = await self.hear("ready")
            undo.pop_all()
        return ready

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.returncode is None and error is not None:
            self._process.kill()
        with suppress(BrokenPipeError, ConnectionResetError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            async with asyncio.timeout(LONGEST_GOODBYE):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await asyncio.gather(*self._listeners)

    async def hear(self, event: str) -> Message:
        """Wait for an event and return what was said with it; raises `AdapterFailed`."""
        try:
            async with asyncio.timeout(self._patience):
                return await self._expected(event)
        except TimeoutError:
            raise AdapterFailed(self._last_words(f"did not say {event} in {self._patience:g} s")) from None

    async def go(self) -> None:
        """Let it begin."""
        await self._tell("go")

    async def stop(self) -> Message:
        """Let it end, and return its report."""
        await self._tell("stop")
        return await self.hear(ANSWERS[self._verb])

    def processor_seconds(self) -> float:
        """Return the processor time that the adapter took so far."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system + times.children_user + times.children_system)

    def peak_memory(self) -> int:
        """Return the most memory that the adapter has held so far, in bytes.

        Linux is asked (proc(5): VmHWM), for getrusage() says in a child what its parent held at the fork.
        """
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        # A process that has ended has no memory any more.
        if "VmHWM:" not in status:
            raise AdapterFailed(self._last_words("ended before its memory was read"))
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    async def _tell(self, word: str) -> None:
        if self._process.stdin is None:
            return
        try:
            self._process.stdin.write(f"{word}\n".encode())
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise AdapterFailed(self._last_words(f"ended before it was told to {word}")) from None

    def _expected(self, event: str) -> asyncio.Future[Message]:
        return self._heard.setdefault(event, asyncio.get_running_loop().create_future())

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            # A peer may print on its own: what is no object of ours is noise.
            with suppress(msgspec.DecodeError):
                self._take(msgspec.json.decode(line, type=Message))
        await self._process.wait()
        for event, heard in self._heard.items():
            if not heard.done():
                heard.set_exception(AdapterFailed(self._last_words(f"ended without saying {event}")))
        self.progressed()

    def check_alive(self) -> None:
        """Raise `AdapterFailed` where the adapter has ended."""
        if self._process.returncode is not None:
            raise AdapterFailed(self._last_words("ended at its work"))

    def _take(self, message: Message) -> None:
        event = message.get("event", "")
        if event == "progress":
            self.executed = message["executed"]
            self.progressed()
        elif not (heard := self._expected(event)).done():
            heard.set_result(message)

    async def _listen_to_errors(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self._errors.append(line.decode(errors="replace").rstrip())
            del self._errors[:-40]

    def _last_words(self, problem: str) -> str:
        return f"{self._peer.label}, {self._verb}: {problem}\n" + "\n".join(self._errors[-15:])


async def perform(peer: Contestant, dsn: str, verb: str, load: Load | None = None) -> Message:
    """Run a verb that ends by itself, and return what it said; raises `AdapterFailed`."""
    async with Program(peer, dsn, verb, load or Load()) as program:
        if verb != "setup":
            await program.go()
        return await program.hear(ANSWERS[verb])


async def executed_by(programs: Sequence[Program], jobs: int, *, silence: float = LONGEST_SILENCE) -> None:
    """Wait until all *programs* together have begun *jobs* jobs; raises `AdapterFailed`.

    It is given up when none begins for *silence* seconds, and at once when a program ends.
    """
    begun = asyncio.Event()
    for program in programs:
        program.progressed = begun.set
    while (done := sum(program.executed for program in programs)) < jobs:
        for program in programs:
            program.check_alive()
        begun.clear()
        try:
            async with asyncio.timeout(silence):
                await begun.wait()
        except TimeoutError:
            msg = f"only {done} of {jobs} jobs began, and then none for {silence:g} s"
            raise AdapterFailed(msg) from None
