"""Serves metrics and the two questions of an orchestrator: does it live, is it ready."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from holdfast.errors import SettingInvalid

Check = Callable[[], bool]

# A client that does not send its request in this time is let go, in seconds.
PATIENCE = 10.0


class MetricsServer:
    """An HTTP server in threads of its own: ``/metrics``, ``/livez`` and ``/readyz``.

    *lives* says whether a restart would help, *ready* whether work is taken.  Both answer 200 or 503.
    """

    def __init__(self, registry: CollectorRegistry, *, lives: Check, ready: Check) -> None:
        self._registry, self._checks = registry, {"/livez": lives, "/readyz": ready}
        self._server: ThreadingHTTPServer | None = None

    def start(self, host: str, port: int) -> str:
        """Begin to serve and answer the address; raises `SettingInvalid` where the port is taken."""
        answer = self._answer

        class Request(BaseHTTPRequestHandler):
            timeout = PATIENCE

            def handle(self) -> None:
                """Answer, unless the client hangs up: that is no news either."""
                with suppress(ConnectionError):
                    super().handle()

            def do_GET(self) -> None:
                status, kind, body = answer(self.path.partition("?")[0], self.headers.get("Accept", ""))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing: a scrape is no news."""

        try:
            self._server = _Listener(host, port, Request)
        except OSError as error:
            msg = f"metrics cannot be served on {host} port {port}: {error.strerror or error}"
            raise SettingInvalid(msg, setting="metrics_port") from error
        threading.Thread(target=self._server.serve_forever, name="holdfast metrics", daemon=True).start()
        return f"{http_address(host, self._server.server_port)}/metrics"

    def stop(self) -> None:
        """Stop serving; safe to call twice."""
        server, self._server = self._server, None
        if server is not None:
            # Wakes the thread, which else looks only twice a second whether it may end.
            with suppress(OSError):
                server.socket.shutdown(socket.SHUT_RDWR)
            server.shutdown()
            server.server_close()

    def _answer(self, path: str, accept: str) -> tuple[int, str, bytes]:
        if path == "/metrics":
            kind, body = exposed(self._registry, accept)
            return 200, kind, body
        check = self._checks.get(path)
        if check is None:
            return 404, "text/plain", b"try /metrics, /livez or /readyz\n"
        return (200, "text/plain", b"ok\n") if check() else (503, "text/plain", b"no\n")


class _Listener(ThreadingHTTPServer):
    """A server on an address of either kind."""

    def __init__(self, host: str, port: int, request: type[BaseHTTPRequestHandler]) -> None:
        self.address_family, address = listening(host, port)
        super().__init__(address, request)


def listening(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """Return the family and the address of a socket that is to listen on *host*; a name is one of IPv4."""
    if ":" not in host:
        return socket.AF_INET, (host, port)
    # Of the interface that an address may name, as in fe80::1%eth0, a bind makes nothing.
    with suppress(OSError):
        return socket.AF_INET6, socket.getaddrinfo(host, port, socket.AF_INET6, socket.SOCK_STREAM)[0][4]
    return socket.AF_INET6, (host, port)


def http_address(host: str, port: int) -> str:
    """Return what to ask a server on *host* by."""
    return f"http://[{host.replace('%', '%25')}]:{port}" if ":" in host else f"http://{host}:{port}"


def exposed(registry: CollectorRegistry, accept: str) -> tuple[str, bytes]:
    """Return the media type and the text of all metrics, in the form that the header *accept* asks for."""
    encode, kind = choose_encoder(accept)
    return kind, encode(_WithoutBirthdays(registry))


class _WithoutBirthdays:
    """A registry without the time at which each counter was made: a third of all lines, and nobody asks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        """Yield every metric without those samples."""
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
