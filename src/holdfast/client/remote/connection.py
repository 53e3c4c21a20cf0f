"""Asks the service, and raises its errors as if the database had been asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import msgspec

from holdfast import errors
from holdfast.errors import (
    DatabaseUnavailable,
    HoldfastError,
    RequestsTooMany,
    ServerRefused,
    ServerUnavailable,
)
from holdfast.errors.service import token_remedied
from holdfast.model.problem import Problem, facts_from, problem_type

T = TypeVar("T")

API = "/api/v1"
# How long an answer may take beyond what it was asked to wait, in seconds.
PATIENCE = 60.0
# A request that may be repeated is sent so often, with these rests between.
RESTS = (0.2, 1.0, 3.0)
# How a proxy says that the service behind it is away; the service itself says more.
AWAY = frozenset({502, 503, 504})

_ERRORS = {
    problem_type(one): one
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, HoldfastError)
}


class RemoteConnection:
    """The service at *address*, spoken to with *token*.  Use it as ``async with``.

    Whatever the service refuses is raised as the error that it is there; `ServerUnavailable` where it
    does not answer, and `ServerRefused` for an answer that is not the service's.  What comes too early for
    the pace of the token is sent again when it may be.
    """

    def __init__(self, address: str, token: str | None = None) -> None:
        self._address = address.rstrip("/")
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._client = httpx.AsyncClient(base_url=self._address + API, headers=headers, timeout=PATIENCE)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def get(self, path: str, answer: type[T], **given: Any) -> T:
        """Ask for something; what is None or empty is not asked for.  Repeated where nobody is there."""
        parameters = msgspec.to_builtins({name: value for name, value in given.items() if _is_asked(value)})
        return _decoded(await self._look(path, params=parameters), answer)

    async def get_bytes(self, path: str) -> bytes:
        """Ask for bytes as they are; repeated where the service is away."""
        return (await self._look(path)).content

    async def post(self, path: str, answer: type[T], body: Any = None, *, key: str | None = None) -> T:
        """Do something; with an idempotency *key* it is repeated where the service is away."""
        content = b"" if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"} | ({} if key is None else {"Idempotency-Key": key})
        rests = RESTS if key is not None else ()
        return _decoded(await self._ask("POST", path, rests, content=content, headers=headers), answer)

    async def _look(self, path: str, **options: Any) -> httpx.Response:
        return await self._ask("GET", path, RESTS, **options)

    async def _ask(self, method: str, path: str, rests: Sequence[float], **options: Any) -> httpx.Response:
        """Send a request, again after each of *rests* while the service is away, or its database."""
        for rest in rests:
            try:
                return await self._in_turn(method, path, **options)
            except (ServerUnavailable, DatabaseUnavailable):
                await asyncio.sleep(rest)
        return await self._in_turn(method, path, **options)

    async def _in_turn(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request; while it comes too early nothing is done there, and it is sent again."""
        until = monotonic() + PATIENCE
        while True:
            try:
                return await self._send(method, path, **options)
            except RequestsTooMany as early:
                if monotonic() + early.retry_after > until:
                    raise
                await asyncio.sleep(early.retry_after)

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = await self._client.request(method, path, **options)
        except httpx.TransportError as error:
            raise ServerUnavailable(self._address, str(error) or type(error).__name__) from error
        if not response.is_success:
            raise self._refusal(response)
        return response

    def _refusal(self, response: httpx.Response) -> HoldfastError:
        error = rebuilt(response.status_code, response.content)
        if isinstance(error, ServerRefused) and error.status in AWAY:
            return ServerUnavailable(self._address, f"{response.status_code} {response.reason_phrase}")
        return error


def _decoded(response: httpx.Response, answer: type[T]) -> T:
    try:
        return msgspec.json.decode(response.content, type=answer)
    except msgspec.DecodeError as error:
        problem = f"it is no answer of Holdfast ({error}): is this the right address?"
        raise ServerRefused(response.status_code, problem) from None


def rebuilt(status: int, body: bytes) -> HoldfastError:
    """Return the error that a problem tells of, with its facts."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.DecodeError:
        return ServerRefused(status, "it does not say why")
    kind = _ERRORS.get(problem.type)
    if kind is None:
        return ServerRefused(status, problem.detail, problem.facts)
    error = kind.__new__(kind)
    Exception.__init__(error, token_remedied(problem.detail))
    # What its constructor would have been given, as the service has told it.
    vars(error).update(facts_from(problem.facts))
    return error


def _is_asked(value: Any) -> bool:
    return value is not None and value != () and value != []
