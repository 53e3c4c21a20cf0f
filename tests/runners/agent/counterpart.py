"""A small server that speaks the runner protocol over real loopback HTTP and remembers everything.

It is stricter than kind: wrong offsets are corrected, stale fences are refused, answers can be lost.
"""

import asyncio
import gzip
import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

Answer = tuple[int, Any, dict[str, str]]
REGISTRATION = "hfg_registration"


@dataclass
class Entry:
    """One assignment as the server knows it."""

    assignment: dict[str, Any]
    state: str = "offered"
    cancel: dict[str, Any] | None = None
    wanted: bool = True
    rungs: dict[str, float] = field(default_factory=dict)
    notes: list[tuple[float, str | None]] = field(default_factory=list)
    logs: dict[str, bytes] = field(default_factory=dict)
    gaps: list[tuple[str, int, int]] = field(default_factory=list)
    arrivals: list[tuple[float, str, bytes]] = field(default_factory=list)
    artifacts: dict[str, bytes] = field(default_factory=dict)
    report: dict[str, Any] | None = None
    reports: int = 0
    starts: int = 0

    def log(self, stream: str = "stdout") -> str:
        """What was logged, as text."""
        return self.logs.get(stream, b"").decode()


class Counterpart:
    """The server of one runner."""

    def __init__(self) -> None:
        self.entries: dict[tuple[int, int], Entry] = {}
        self.registrations: list[dict[str, Any]] = []
        self.syncs: list[dict[str, Any]] = []
        self.left = False
        self.term = 0
        self.draining = False
        self.intervals: dict[str, float] = {
            "sync_every": 1,
            "sync_wait": 5,
            "lost_after": 60,
            "cancel_grace": 5,
        }
        # False where the syncs of a runner are held by processes that know nothing of one another.
        self.lets_go = True
        self.log_limit = 1 << 40
        self.body_limit = 4 << 20
        # What a body beyond it is refused with.
        self.body_status = 413
        # Called with method and path before a request is served; True loses the answer afterwards.
        self.loses: Callable[[str, str], bool] = lambda _method, _path: False
        self.refuses: Callable[[str, str], Answer | None] = lambda _method, _path: None
        self._tokens: set[str] = set()
        self._is_revoked = False
        self._news = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._lines: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self._frozen = False

    @property
    def address(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen, on the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Go away in the midst of whatever is under way."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for line in tuple(self._lines):
            line.transport.abort()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def forget_tokens(self) -> None:
        """Revoke the runner's token: those of its assignments are no good until it registers again."""
        self.term += 1
        self._tokens.clear()
        self._is_revoked = True

    async def freeze(self) -> None:
        """Answer nothing any more, as where the network is cut."""
        self._frozen = True
        for line in tuple(self._lines):
            line.transport.abort()

    async def thaw(self) -> None:
        """Answer again."""
        self._frozen = False
        for line in tuple(self._lines):
            line.transport.abort()

    async def offer(self, kind: str = "command", attempt: int = 1, **args: Any) -> Entry:
        """Offer a job; *args* are its arguments, save the ``timeout``."""
        job = args.pop("job", len(self.entries) + 1)
        facts: dict[str, Any] = {name: args.pop(name) for name in ("on_loss", "grace") if name in args}
        spec = json.dumps(
            {"args": args.pop("args", None) or args, "kind": kind, "timeout": args.pop("timeout", 60)}
        )
        entry = Entry(
            {
                "job": job,
                "attempt": attempt,
                "kind": kind,
                "queue": "default",
                "spec": spec,
                "spec_sha256": hashlib.sha256(spec.encode()).hexdigest(),
                "token": f"hfa_{job}_{attempt}",
                "timeout": json.loads(spec)["timeout"],
                **facts,
            }
        )
        self.entries[job, attempt] = entry
        await self.change()
        return entry

    async def cancel(self, entry: Entry, grace: float = 5.0) -> None:
        """Ask for the end of a job."""
        entry.cancel = {"cause": "requested", "reason": "no longer wanted", "grace": grace}
        await self.change()

    async def change(self) -> None:
        """Wake whoever waits: a sync, or a test."""
        async with self._news:
            self._news.notify_all()

    async def until(self, question: Callable[[], Any], timeout: float = 15.0) -> None:
        """Wait until a question about what is known is answered with true."""
        async with asyncio.timeout(timeout), self._news:
            await self._news.wait_for(question)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:
            # It was on its way when we left: it would be served by somebody who is not there.
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._lines.add(writer)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            self._tasks.discard(task)
            self._lines.discard(writer)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        too_large = self._is_too_large(body)
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        if self._frozen:
            await asyncio.Event().wait()
        loses = self.loses(method, path)
        refused = self.refuses(method, path) or too_large
        status, answer, extra = refused or await self._answer(method, path, headers, body)
        await self.change()
        if loses:
            writer.transport.abort()
            return False
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        extra = {"Content-Length": str(len(data)), **extra}
        writer.write(f"HTTP/1.1 {status} x\r\n".encode())
        writer.write(
            "".join(f"{name}: {value}\r\n" for name, value in extra.items()).encode() + b"\r\n" + data
        )
        await writer.drain()
        return True

    async def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        token = headers.get("authorization", "").removeprefix("Bearer ")
        parts = path.removeprefix("/runner/v1/").split("/")
        if parts == ["register"]:
            return self._register(token, json.loads(body))
        if parts[0] != "assignments" or parts[-1] == "finish":
            if token != f"hfr_{self.term}":
                kind = "runner-superseded" if token in self._tokens else "token-invalid"
                return 401, {"type": f"urn:holdfast:problem:{kind}", "detail": f"{kind}: {token}"}, {}
            if parts == ["sync"]:
                return await self._sync(json.loads(body))
            if parts == ["leave"]:
                self.left = True
                return 200, {}, {}
        if self._is_revoked:
            return 401, {"type": "urn:holdfast:problem:token-invalid", "detail": "it is revoked"}, {}
        entry = self.entries.get((int(parts[1]), int(parts[2])))
        if entry is None or not entry.wanted:
            return (
                409,
                {"type": "urn:holdfast:problem:assignment-stale", "detail": "it is not yours", "truth": {}},
                {},
            )
        if parts[3] == "finish":
            return self._finish(entry, json.loads(body))
        if token != entry.assignment["token"]:
            return 403, {"type": "urn:holdfast:problem:assignment-foreign", "detail": "not for this"}, {}
        if parts[3] == "spec":
            return 200, entry.assignment["long"].encode(), {}
        if parts[3] == "start":
            entry.starts += 1
            return 200, {"state": "running"}, {}
        if parts[3] == "logs":
            return self._log(entry, parts[4], headers, body)
        assert method == "PUT"
        entry.artifacts[unquote("/".join(parts[4:]))] = body
        return 201, {}, {}

    def _is_too_large(self, body: bytes) -> Answer | None:
        if len(body) <= self.body_limit:
            return None
        return self.body_status, {"detail": "the body is too large"}, {}

    def _register(self, token: str, body: dict[str, Any]) -> Answer:
        if token not in (REGISTRATION, f"hfr_{self.term}"):
            return (
                401,
                {"type": "urn:holdfast:problem:token-invalid", "detail": "this token is not known"},
                {},
            )
        self.registrations.append(body)
        self.term += 1
        self._is_revoked = False
        self._tokens.add(f"hfr_{self.term}")
        runner = {"id": 7, "name": body["name"], "term": self.term}
        answer = {"runner": runner, "token": f"hfr_{self.term}", "protocol": 1, "intervals": self.intervals}
        return 201, answer, {}

    async def _sync(self, body: dict[str, Any]) -> Answer:
        self.syncs.append(body)
        mine = len(self.syncs)
        news = self._hear(body)
        async with self._news:
            # Whoever waits in the test for what was heard just now.
            self._news.notify_all()

            def said() -> bool:
                return news or (self.lets_go and mine < len(self.syncs)) or self._has_news(body)

            with suppress(TimeoutError):
                async with asyncio.timeout(body["wait"]):
                    await self._news.wait_for(said)
        return 200, {"number": body["number"], "draining": self.draining, "intervals": self.intervals,
                     "hold": self._hold(body), "refused": []}, {}  # fmt: skip

    def _hear(self, body: dict[str, Any]) -> bool:
        """Take in what the runner holds; answers whether that alone calls for an answer."""
        news = False
        for held in body["held"]:
            entry = self.entries.get((held["job"], held["attempt"]))
            if entry is None or not entry.wanted:
                news = True
            elif held["state"] == "ended":
                self._finish(entry, held["report"])
                news = True
            elif entry.state != "ended":
                entry.state = held["state"]
                if held.get("progress") is not None:
                    entry.notes.append((held["progress"], held.get("note")))
                if held.get("rung"):
                    entry.rungs.setdefault(held["rung"], time.monotonic())
        return news

    def _has_news(self, body: dict[str, Any]) -> bool:
        offers = any(entry.state == "offered" for entry in self.entries.values()) and body["free"] > 0
        stops = any(
            entry.state != "ended" and ((entry.cancel and not entry.rungs) or not entry.wanted)
            for entry in self.entries.values()
            if entry.state != "offered"
        )
        return offers or stops or self.draining

    def _hold(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        hold, free = [], body["free"]
        for (job, attempt), entry in self.entries.items():
            if not entry.wanted or entry.state == "ended":
                continue
            one = {"job": job, "attempt": attempt, "state": entry.state, "cancel": entry.cancel}
            if entry.state == "offered":
                if free <= 0 or body["draining"] or self.draining:
                    continue
                free -= 1
                one["assignment"] = entry.assignment
            hold.append(one)
        return hold

    def _finish(self, entry: Entry, report: dict[str, Any]) -> Answer:
        entry.reports += 1
        repeated = entry.report is not None
        if not repeated:
            for stream, total in (report.get("logs") or {}).items():
                kept = entry.logs.get(stream, b"")
                if not total.get("gap"):
                    assert hashlib.sha256(kept).hexdigest() == total["sha256"], (stream, total, kept[:200])
            entry.report, entry.state = report, "ended"
        return 200, {"outcome": report["outcome"], "repeated": repeated}, {}

    def _log(self, entry: Entry, stream: str, headers: dict[str, str], body: bytes) -> Answer:
        kept = entry.logs.setdefault(stream, b"")
        size = len(kept) + sum(length for name, _, length in entry.gaps if name == stream)
        offset = int(headers["holdfast-offset"])
        if offset != size:
            return (
                416,
                {"type": "urn:holdfast:problem:log-offset-wrong", "detail": "elsewhere"},
                {"Holdfast-Offset": str(size)},
            )
        if gap := int(headers.get("holdfast-gap", 0)):
            entry.gaps.append((stream, offset, gap))
            return 202, {}, {"Holdfast-Offset": str(offset + gap)}
        room = max(0, self.log_limit - len(kept))
        cut = {"Holdfast-Cut": str(self.log_limit)} if len(body) > room else {}
        entry.logs[stream] = kept + body[:room]
        entry.arrivals.append((time.time(), stream, body))
        return 202, {}, {"Holdfast-Offset": str(offset + len(body[:room])), **cut}
