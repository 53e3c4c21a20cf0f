"""Bounds the heads of requests: how long one may take, how large it may grow, and that it is for HTTP/1.1.

Nobody has shown a token yet while a head comes in, so that whoever sends one without end could hold
connections and memory of the service for nothing.  uvicorn bounds neither.  It also loses the body of a
request that offers to go on in another protocol, as some clients do with each.
"""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from typing import Any, ClassVar

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_HEAD = 64 * 1024


class PlainParser(HttpRequestParser):
    """Reads HTTP/1.1 and nothing else: an offer of another protocol is passed over, as RFC 9110 allows.

    The parser of httptools ends a request with an offer at its head, and would read its body as the next one.
    So the head is read once more without the offer, and the rest behind that.
    """

    def __init__(self, protocol: HttpToolsProtocol) -> None:
        super().__init__(protocol)
        self._protocol = protocol
        # As uvicorn has it, for requests behind the last one that a connection answers.
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def feed_data(self, data: Any) -> None:
        """Take bytes in."""
        rest = memoryview(data)
        while True:
            try:
                super().feed_data(rest)
            except HttpParserUpgrade as offer:
                rest = rest[offer.args[0] :]
                super().feed_data(self._head_without_offer())
            else:
                return

    def _head_without_offer(self) -> bytes:
        read, version = self._protocol, self.get_http_version().encode()
        lines = [b"%s: %s" % header for header in read.headers if header[0] != b"upgrade"]
        return b"\r\n".join([b"%s %s HTTP/%s" % (self.get_method(), read.url, version), *lines, b"", b""])


class HeadProtocol(HttpToolsProtocol):
    """HTTP on one connection, whose next head has to be there *patience* seconds after its first byte.

    That of a new connection is waited for from the beginning.  Between requests a connection may rest for as
    long as uvicorn keeps it; a body that comes after its request was answered has no more time than a head.
    """

    patience: ClassVar[float]

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.parser = PlainParser(self)
        self._timer: TimerHandle | None = None
        self._head_size = 0
        self._in_body = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take bytes in, and see whether the head that they belong to is complete."""
        is_head = not self._in_body
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget_head()
            return
        self._await_head()
        self._head_size += len(data) if is_head else 0
        if self._head_size > LARGEST_HEAD and not self.transport.is_closing():
            self.send_400_response(f"The head of a request has at most {LARGEST_HEAD} bytes.")

    def on_headers_complete(self) -> None:
        """Hand the request on, unless its head will be read once more."""
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                msg = "This is no proxy."
                raise HttpParserError(msg)
            return
        self._in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Let the next head have time of its own."""
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._in_body = False
        self._forget_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._forget_head()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.patience, self.transport.close)

    def _forget_head(self) -> None:
        self._head_size = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def protocol(seconds: float) -> type[HeadProtocol]:
    """Return the protocol of a server that waits so long for a head."""

    class Patient(HeadProtocol):
        patience = seconds

    return Patient
