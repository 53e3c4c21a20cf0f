"""Bounds requests as they come in: how long a head takes, how large it grows, how long a body rests.

Nobody has shown a token yet while a head comes in, so that whoever sends one without end could hold
connections and memory of the service for nothing.  uvicorn bounds neither, nor a body that never comes.  It
also loses the body of a request that offers to go on in another protocol, as some clients do with each.
"""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from typing import Any, ClassVar

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_HEAD = 64 * 1024
TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


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
    long as uvicorn keeps it.  A body may take as long as it likes while each piece of it is there
    *body_patience* seconds after the one before; once its request was answered it has as little as a head.
    """

    patience: ClassVar[float]
    body_patience: ClassVar[float]

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.parser = PlainParser(self)
        self._timer: TimerHandle | None = None
        self._head_size = 0
        # Whether a request ended in the piece that is being read.
        self._in_body = self._is_complete = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take bytes in, and see whether the head that they belong to is complete."""
        is_head, self._is_complete = not self._in_body, False
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget_time()
            self._await_body()
            if is_head and not (self._in_body or self._is_complete):
                # The next head may come while this answer is under way, and takes memory all the same.
                self._head_size += len(data)
                if self._head_size > LARGEST_HEAD:
                    self.transport.close()
            return
        self._await_head()
        self._head_size += len(data) if is_head else 0
        self._bound_head(self._head_size)

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read, for the first reason that there is."""
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def on_headers_complete(self) -> None:
        """Hand the request on, unless its head will be read once more."""
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                msg = "This is no proxy."
                raise HttpParserError(msg)
            return
        # What came at once was never seen incomplete.
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if self._bound_head(size):
            raise HttpParserError
        self._in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Let the next head have time of its own."""
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._in_body, self._is_complete = False, True
        self._forget_head()

    def on_response_complete(self) -> None:
        """Let what is left of the body have no more time than a head."""
        super().on_response_complete()
        if self._in_body:
            self._forget_head()
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._forget_head()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.patience, self.transport.close)

    def _bound_head(self, size: int) -> bool:
        if size > LARGEST_HEAD:
            self.send_400_response(f"The head of a request has at most {LARGEST_HEAD} bytes.")
        return size > LARGEST_HEAD

    def _await_body(self) -> None:
        if self._in_body:
            self._timer = self.loop.call_later(self.body_patience, self._give_up)

    def _give_up(self) -> None:
        if self.flow.read_paused:
            # It is the service that does not take more just now.
            self._await_body()
            return
        if not self.pipeline and not self.cycle.response_started:
            self.transport.write(TOO_SLOW)
        self.transport.close()

    def _forget_head(self) -> None:
        self._head_size = 0
        self._forget_time()

    def _forget_time(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def protocol(head: float, body: float) -> type[HeadProtocol]:
    """Return the protocol of a server that waits so many seconds for a head, and for a piece of a body."""

    class Patient(HeadProtocol):
        patience, body_patience = head, body

    return Patient
