"""Speaks HTTP with the server for one runner."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from holdfast.errors import ServerRefused, ServerUnavailable
from holdfast.model.problem import PREFIX
from holdfast.runners.agent.messages import (
    Assignment,
    Fence,
    Finished,
    Held,
    Registered,
    Registration,
    Report,
    Started,
    SyncAnswer,
)
from holdfast.runners.agent.spec import Spec

T = TypeVar("T")

# How long the server may take beyond what it was asked to wait, and to take in a file, in seconds.
PATIENCE = 15.0
LONGEST_UPLOAD = 300.0
# How long a goodbye may take, in seconds: who does not hear it finds out.
FAREWELL = 3.0
# Answers that say nothing about the request: ask again.
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_DOWN = frozenset({502, 503, 504})
# What a proxy says of a body that it does not let through holds for the next time, too.
_ABOUT_BODY = frozenset({400, 413})
# Below this, packing costs more than it saves.
_WORTH_PACKING = 1024
# Whoever asks these does something about a token that is refused.
_MENDING = frozenset({"/register", "/sync"})
OFFSET, GAP, CUT = "Holdfast-Offset", "Holdfast-Gap", "Holdfast-Cut"


class LogPlace(msgspec.Struct, frozen=True):
    """Where the server goes on in a stream; *cut* says that it keeps nothing more of it."""

    offset: int
    cut: bool = False


class Connection:
    """The server as a runner sees it.

    Every method may raise `ServerUnavailable`, after which the same request is repeated, and
    `ServerRefused`, after which it is not.  What others answer in its place, on the way or at its address,
    says nothing of the request: the server counts as away.  It does so, too, where it refuses a token, but
    for `register` and `sync`: they learn whether there is a new one, or nobody wants what is asked for.
    """

    def __init__(self, address: str, version: str) -> None:
        self._address = address.rstrip("/")
        self._client = self._opened(version, 64, 16)
        # Many files that take long must not keep the server from hearing that this runner is there.
        self._heart = self._opened(version, 4, 4)
        self.token = ""

    def _opened(self, version: str, most: int, kept: int) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=f"{self._address}/runner/v1",
            headers={"User-Agent": f"holdfast-runner/{version}"},
            timeout=PATIENCE,
            limits=httpx.Limits(max_connections=most, max_keepalive_connections=kept),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up."""
        await self._client.aclose()
        await self._heart.aclose()

    async def register(self, registration: Registration, token: str) -> Registered:
        """Register, and speak as that runner from now on."""
        answer = await self._ask("POST", "/register", token=token, json=registration)
        registered = _read(answer, Registered)
        self.token = registered.token
        return registered

    async def sync(
        self, number: int, held: list[Held], *, free: int, wait: float, draining: bool
    ) -> SyncAnswer:
        """Say what this runner holds; answers what it should hold, after *wait* seconds at most."""
        body = {"number": number, "free": free, "wait": wait, "draining": draining, "held": held}
        return _read(await self._ask("POST", "/sync", json=body, timeout=wait + PATIENCE), SyncAnswer)

    async def begin(self, assignment: Assignment, number: int) -> None:
        """Say that an assignment begins."""
        body = {"number": number}
        path = f"{_path(assignment.fence)}/start"
        _read(await self._ask("POST", path, token=assignment.token, json=body), Started)

    async def finish(self, fence: Fence, number: int, report: Report) -> None:
        """Report the end of an assignment."""
        body = {"number": number, **msgspec.to_builtins(report)}
        _read(await self._ask("POST", f"{_path(fence)}/finish", json=body), Finished)

    async def leave(self, number: int) -> None:
        """Say goodbye."""
        await self._ask("POST", "/leave", json={"number": number}, timeout=FAREWELL)

    async def spec(self, assignment: Assignment) -> str:
        """Return the spec of an assignment."""
        answer = await self._ask("GET", f"{_path(assignment.fence)}/spec", token=assignment.token)
        _read(answer, Spec)
        return answer.text

    async def append(self, assignment: Assignment, stream: str, offset: int, data: bytes) -> LogPlace:
        """Append to a stream; answers where it goes on, also where *offset* was wrong."""
        headers = {OFFSET: str(offset)}
        if len(data) >= _WORTH_PACKING:
            data, headers["Content-Encoding"] = gzip.compress(data, 1), "gzip"
        return await self._patch(assignment, stream, headers, data)

    async def append_gap(self, assignment: Assignment, stream: str, offset: int, length: int) -> LogPlace:
        """Mark *length* bytes of a stream as lost."""
        return await self._patch(assignment, stream, {OFFSET: str(offset), GAP: str(length)}, b"")

    async def keep(self, assignment: Assignment, name: str, data: bytes) -> None:
        """Keep an artifact."""
        path = f"{_path(assignment.fence)}/artifacts/{quote(name)}"
        answer = await self._ask("PUT", path, token=assignment.token, content=data, timeout=LONGEST_UPLOAD)
        if answer.content:
            # A server says nothing here, or data; somebody's page says that nothing has arrived.
            _read(answer, Any)

    async def _patch(
        self, assignment: Assignment, stream: str, headers: Mapping[str, str], data: bytes
    ) -> LogPlace:
        try:
            answer = await self._ask(
                "PATCH",
                f"{_path(assignment.fence)}/logs/{stream}",
                token=assignment.token,
                headers=headers,
                content=data,
            )
        except ServerRefused as error:
            if error.status == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE and "offset" in error.facts:
                return LogPlace(int(error.facts["offset"]))
            raise
        if OFFSET not in answer.headers:
            raise _foreign(answer, f"without {OFFSET}")
        return LogPlace(int(answer.headers[OFFSET]), CUT in answer.headers)

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        content: bytes | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = PATIENCE,
    ) -> httpx.Response:
        sent = {"Authorization": f"Bearer {token or self.token}", **(headers or {})}
        if json is not None:
            content, sent["Content-Type"] = msgspec.json.encode(json), "application/json"
        client = self._heart if path == "/sync" else self._client
        try:
            answer = await client.request(method, path, content=content, headers=sent, timeout=timeout)
        except (httpx.TransportError, httpx.DecodingError) as error:
            problem = f"{type(error).__name__} {error}".strip()
            raise ServerUnavailable(self._address, problem, is_down=_is_refused(error)) from error
        if answer.is_success:
            return answer
        refusal = self._refusal(answer)
        if isinstance(refusal, ServerRefused) and refusal.is_about_token and path not in _MENDING:
            raise ServerUnavailable(self._address, f"{refusal.status} {refusal.problem}")
        raise refusal

    def _refusal(self, answer: httpx.Response) -> ServerUnavailable | ServerRefused:
        try:
            facts = msgspec.json.decode(answer.content, type=dict[str, Any])
        except msgspec.DecodeError:
            facts = {}
        problem = str(facts.get("detail") or facts.get("title") or facts.get("type") or answer.reason_phrase)
        if answer.status_code in _PASSING:
            # Somebody at its door says that it is away, or it says so of its database.
            is_down = answer.status_code in _DOWN
            return ServerUnavailable(self._address, f"{answer.status_code} {problem}", is_down=is_down)
        if not str(facts.get("type")).startswith(PREFIX) and answer.status_code not in _ABOUT_BODY:
            return _foreign(answer, problem)
        if OFFSET in answer.headers:
            facts["offset"] = answer.headers[OFFSET]
        return ServerRefused(answer.status_code, problem, facts)


def _path(fence: Fence) -> str:
    return f"/assignments/{fence.job_id}/{fence.attempt}"


def _is_refused(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ConnectionRefusedError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _read(answer: httpx.Response, type: type[T]) -> T:
    try:
        return msgspec.json.decode(answer.content, type=type)
    except msgspec.DecodeError as error:
        raise _foreign(answer, str(error)) from error


def _foreign(answer: httpx.Response, problem: str) -> ServerUnavailable:
    """Return what an answer comes to that is not Holdfast's: a proxy's page, or all of a wrong address."""
    told = [
        f"{name} {answer.headers[name]}"[:200] for name in ("Server", "Location") if name in answer.headers
    ]
    said = ", ".join([f"{answer.status_code} {problem}".strip(), *told])
    return ServerUnavailable(str(answer.url), f"something else does ({said}); is this the right address?")
