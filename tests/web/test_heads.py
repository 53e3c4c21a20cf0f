"""The head of a request, before which nobody has shown a token, is bounded in time, size and protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from holdfast.model.token import Role
from holdfast.web.heads import LARGEST_HEAD
from tests.web.conftest import Serve, Service
from tests.web.test_runners import MACHINE

# One of them on the express lane, one on the way of the framework, and one that goes nowhere.
BEGINNINGS = [
    "POST /runner/v1/claim HTTP/1.1\r\nHo",
    "GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\n",
    "GET /li",
    "",
]
WHOLE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def line_to(service: Service) -> AsyncIterator[Line]:
    """A connection to the service, on which a test says what it likes."""
    host, _, port = service.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


async def dripped(line: Line, text: Callable[[], bytes]) -> bytes:
    """Send a piece again and again until the server hangs up; answers all that it said."""
    reader, writer = line
    said = asyncio.create_task(reader.read())
    async with asyncio.timeout(30):
        while not said.done():
            writer.write(text())
            await asyncio.wait([said], timeout=0.02)
    try:
        return await said
    except ConnectionError:
        return b""


@pytest.mark.parametrize("beginning", BEGINNINGS)
async def test_a_head_that_never_ends_is_hung_up_on(serve: Serve, beginning: str) -> None:
    """Whichever lane it is for, and however much it says to gain time; also where it says nothing."""
    service = await serve(head_patience=0.3)
    async with line_to(service) as line:
        line[1].write(beginning.encode())
        assert await dripped(line, lambda: b"x" if beginning else b"") == b""


@pytest.mark.parametrize("more", [b"GET /livez HTTP/1.1\r\nX", b"\r\n"])
async def test_a_connection_that_was_good_once_has_no_more_time(serve: Serve, more: bytes) -> None:
    """The head of its next request is waited for as long as that of the first one, and what is none too."""
    service = await serve(head_patience=2.0)
    async with line_to(service) as line:
        line[1].write(WHOLE)
        head = await line[0].readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        line[1].write(more)
        await dripped(line, lambda: more[-1:])


async def test_a_body_that_comes_after_its_answer_has_no_more_time(serve: Serve) -> None:
    """A request without a token was refused by its head: the rest of it keeps no connection."""
    service = await serve(head_patience=2.0)
    await service.token(Role.ADMIN)
    async with line_to(service) as line:
        line[1].write(b"POST /runner/v1/claim HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        assert b" 401 " in await line[0].readuntil(b"\r\n")
        await dripped(line, lambda: b" ")


async def test_an_answer_may_take_longer_than_a_head(serve: Serve) -> None:
    """A head that is there is there: who waits for work, or sends a body little by little, is let be."""
    service = await serve(head_patience=2.0)
    caller = await service.caller()
    token = (await caller.post("/runner/v1/register", json=MACHINE)).json()["token"]
    body = b'{"wait": 0.5, "free": 1}'
    head = (
        f"POST /runner/v1/sync HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    async with line_to(service) as (reader, writer):
        writer.write(head.encode() + body[:-1])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 2.5)
        writer.write(body[-1:])
        assert b" 200 " in await reader.readuntil(b"\r\n")


async def test_a_head_without_end_is_refused_by_its_size(service: Service) -> None:
    """Long before its time is over, and before it has cost more memory than that."""
    async with line_to(service) as line:
        line[1].write(WHOLE[:-2])
        said = await dripped(line, lambda: b"X-More: " + b"y" * 4096 + b"\r\n")
    assert said.startswith(b"HTTP/1.1 400 ")
    assert str(LARGEST_HEAD).encode() in said


async def test_a_head_behind_a_request_that_waits_is_bounded_by_its_size(service: Service) -> None:
    """It has no time yet, but takes memory: whoever may wait for work could send it without end."""
    caller = await service.caller()
    token = (await caller.post("/runner/v1/register", json=MACHINE)).json()["token"]
    body = b'{"wait": 60, "free": 1}'
    head = (
        f"POST /runner/v1/sync HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    sent = 0

    def more() -> bytes:
        nonlocal sent
        sent += 1
        return b"y" * 4096

    async with line_to(service) as line:
        line[1].write(head.encode() + body + WHOLE[:-2] + b"X-More: ")
        await dripped(line, more)
    assert sent > LARGEST_HEAD // 4096


@pytest.mark.parametrize("header", [b"X-More: " + b"y" * 70_000, b"X-More: 1\r\n" * 9_000])
async def test_a_large_head_in_one_piece_is_refused_by_its_size(service: Service, header: bytes) -> None:
    """It is never seen incomplete, and is no smaller for that."""
    async with line_to(service) as (reader, writer), asyncio.timeout(30):
        writer.write(WHOLE[:-2] + header + b"\r\n\r\n" + WHOLE)
        said = await reader.read()
    assert said.count(b"HTTP/1.1 ") == said.count(b"HTTP/1.1 400 ") == 1
    assert str(LARGEST_HEAD).encode() in said


async def slowly(service: Service, path: str) -> bytes:
    """The head of a request of a runner, whose body of 40 bytes is still to come."""
    token = (await (await service.caller()).post("/runner/v1/register", json=MACHINE)).json()["token"]
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 40\r\n\r\n"
    ).encode()


@pytest.mark.parametrize("path", ["/runner/v1/claim", "/runner/v1/leave"], ids=["lane", "framework"])
@pytest.mark.parametrize("begun", [b"", b'{"number"'], ids=["nothing", "a part"])
async def test_a_body_that_never_comes_is_hung_up_on(serve: Serve, path: str, begun: bytes) -> None:
    """Who may ask may hold connections no longer than who may not; a runner asks again after a 408."""
    service = await serve(body_patience=0.3)
    head = await slowly(service, path)
    async with line_to(service) as (reader, writer), asyncio.timeout(30):
        writer.write(head + begun)
        said = await reader.read()
    assert said.startswith(b"HTTP/1.1 408 ")
    assert said.count(b"HTTP/1.1 ") == 1


async def test_a_body_that_comes_slowly_is_taken(serve: Serve) -> None:
    """However long the whole of it takes: each piece has time of its own."""
    # A full machine may add a second and more to the rest between two pieces.
    service, body = await serve(body_patience=2.5), b'{"count": 1}'.ljust(40)
    head = await slowly(service, "/runner/v1/claim")
    async with line_to(service) as (reader, writer), asyncio.timeout(30):
        writer.write(head)
        said = asyncio.create_task(reader.readuntil(b"\r\n"))
        for at in range(0, 40, 5):
            await asyncio.wait([said], timeout=0.4)
            writer.write(body[at : at + 5])
        assert b" 200 " in await said


async def test_a_large_body_behind_a_refusal_is_no_head(service: Service) -> None:
    """It is passed over, and the connection serves the next request."""
    await service.token(Role.ADMIN)
    size = 4 * LARGEST_HEAD
    async with line_to(service) as (reader, writer):
        head = f"POST /runner/v1/claim HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"
        writer.write(head.encode())
        refusal = await reader.readuntil(b"\r\n\r\n")
        assert b" 401 " in refusal
        told = dict(line.split(b": ", 1) for line in refusal.splitlines()[1:] if line)
        await reader.readexactly(int(told[b"content-length"]))
        writer.write(b" " * size + WHOLE)
        assert await reader.readuntil(b"\r\n") == b"HTTP/1.1 200 OK\r\n"


OFFERS = {
    # Java's HttpClient says so with each request to an address without TLS.
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n",
    "websocket": b"connection:upgrade\r\nX-Empty:\r\nupgrade: WebSocket\r\n",
}
# What a body may hold, seen as a request.
SMUGGLED = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"
BODY = b'{"kind": "mail:send", "args": {"to": "%s"}}' % b"ada" + b" " * 20 + b"\r\n\r\n"
COUNTED = b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)


async def answered(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read one answer: its first line and its body."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).splitlines()
    told = dict(line.lower().split(b": ", 1) for line in lines if line)
    return first, await reader.readexactly(int(told[b"content-length"]))


@pytest.mark.parametrize("offer", OFFERS)
@pytest.mark.parametrize("body", [COUNTED, CHUNKED], ids=["counted", "chunked"])
@pytest.mark.parametrize("step", [1, 7, 10_000])
async def test_an_offer_of_another_protocol_is_passed_over(
    service: Service, offer: str, body: bytes, step: int
) -> None:
    """The request keeps its body, and what comes behind it its answer, in whichever pieces they arrive."""
    head = (
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + OFFERS[offer]
    )
    said = 2 * (head + body) + WHOLE
    async with line_to(service) as (reader, writer), asyncio.timeout(30):
        for at in range(0, len(said), step):
            writer.write(said[at : at + step])
            await asyncio.sleep(0)
        for _ in range(2):
            first, shown = await answered(reader)
            assert first == b"HTTP/1.1 201 Created", shown
        assert (await answered(reader))[0] == b"HTTP/1.1 200 OK"
    assert await service.db.value("select count(*) from holdfast.jobs where args->>'to' = 'ada'") == 2


async def test_a_body_behind_an_offer_is_no_request(service: Service) -> None:
    """However late it comes: it was answered as one, past whoever looks at requests before the service."""
    head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % len(SMUGGLED)
    async with line_to(service) as (reader, writer), asyncio.timeout(30):
        writer.write(head + OFFERS["h2c"] + b"Expect: 100-continue\r\n\r\n")
        # Asked for its body, it has taken the head in.
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(SMUGGLED + b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answers = (await reader.read()).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"400", b"404"]


async def test_a_request_for_a_tunnel_is_refused(service: Service) -> None:
    """What came behind it was lost without an answer."""
    async with line_to(service) as (reader, writer), asyncio.timeout(30):
        writer.write(b"CONNECT /livez HTTP/1.1\r\nHost: x\r\n\r\n" + WHOLE)
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
