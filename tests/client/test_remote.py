"""The client of the service, before a door at which a proxy answers for it."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta

import msgspec
import pytest

from holdfast.client.remote import connection
from holdfast.client.remote.connection import RemoteConnection
from holdfast.errors import HoldfastError, OptionInvalid, ServerRefused, ServerUnavailable, StepNotFound
from holdfast.model.problem import Problem, facts_of, problem_type

GOOD = (200, b'{"id": 7}')
Door = Callable[[Sequence[tuple[int, bytes]]], Awaitable["Answering"]]


class Answering:
    """Gives one answer after another, whatever it is asked, and keeps the heads of the requests."""

    def __init__(self, answers: Sequence[tuple[int, bytes]]) -> None:
        self._answers = iter(answers)
        self.heads: list[bytes] = []
        self.address = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and hang up."""
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        status, body = next(self._answers)
        writer.write(b"HTTP/1.1 %d Well\r\nConnection: close\r\n\r\n%s" % (status, body))
        writer.close()
        await writer.wait_closed()


@pytest.fixture
async def door(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Door]:
    """Opens a door with these answers; whoever asks there again does so at once."""
    monkeypatch.setattr(connection, "RESTS", (0.0, 0.0))
    servers: list[asyncio.Server] = []

    async def opened(answers: Sequence[tuple[int, bytes]]) -> Answering:
        one = Answering(answers)
        servers.append(server := await asyncio.start_server(one.answer, "127.0.0.1", 0))
        one.address = "http://127.0.0.1:{1}".format(*server.sockets[0].getsockname())
        return one

    yield opened
    for server in servers:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_service_that_its_proxy_finds_away_is_asked_again(door: Door, status: int) -> None:
    """As one that nobody stands before: what may be repeated is, and with the same key."""
    place = await door([(status, b"<html>"), GOOD, (status, b"<html>"), GOOD, (status, b"<html>")])
    async with RemoteConnection(place.address) as remote:
        assert await remote.get("/x", dict[str, int]) == {"id": 7}
        assert await remote.post("/x", dict[str, int], {}, key="order-7") == {"id": 7}
        with pytest.raises(ServerUnavailable, match=f"does not answer: {status} Well"):
            await remote.post("/x", dict[str, int], {})
    assert [b"order-7" in head for head in place.heads] == [False, False, True, True, False]


async def test_where_a_service_has_moved_to_is_no_file_of_it(door: Door) -> None:
    """A redirect is refused; what it says for people would be saved as the bytes that were asked for."""
    place = await door([(301, b"moved to https://elsewhere")])
    async with RemoteConnection(place.address) as remote:
        with pytest.raises(ServerRefused, match="301"):
            await remote.get_bytes("/x")


@pytest.mark.parametrize(
    ("error", "name", "known"),
    [
        (StepNotFound(7, "pack", "main", ("ship", "send")), "finished", ("ship", "send")),
        (OptionInvalid("delay", timedelta(-1), "give one that is not negative"), "value", None),
    ],
    ids=lambda part: type(part).__name__,
)
async def test_every_fact_of_an_error_can_be_read_behind_a_service(
    door: Door, error: HoldfastError, name: str, known: object
) -> None:
    """Also where it is a list, or cannot travel."""
    told = Problem(
        type=problem_type(type(error)), title="", status=400, detail=str(error), facts=facts_of(error)
    )
    place = await door([(400, msgspec.json.encode(told))])
    async with RemoteConnection(place.address) as remote:
        with pytest.raises(type(error), match=re.escape(str(error))) as raised:
            await remote.get("/x", dict[str, int])
    assert getattr(raised.value, name) == known
