"""A GitHub of our own on loopback: an organisation with real repositories, in pages, with a rate limit."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from examples.forge import git
from examples.forge.repositories import DEFAULT_BRANCH
from examples.forge.scene.history import Growth, grow

PER_PAGE = 3
ORGANISATION = "acme"
NAMES = ("anvil", "bellows", "crucible", "drill", "ember", "furnace", "gauge")
# Listed, but gone by the time somebody asks for it.
GONE = "hammer"


class LoopbackGitHub:
    """Serves *folder* on a free port of the loopback interface while entered.

    The second page of the listing and one of the repositories are refused at first, with a 403 and a 429
    that tell how long to rest; another one meets a 502.  *asked* counts the answers by status.
    """

    def __init__(self, folder: Path, *, rest: float = 1.0) -> None:
        self.folder, self.rest = folder, rest
        self.asked: Counter[int] = Counter()
        self._refused: set[str] = set()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.05], name="github")

    @property
    def url(self) -> str:
        """The base address of the API."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        for name in NAMES:
            _make(self.folder / ORGANISATION / f"{name}.git", name)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def answer(self, target: str) -> tuple[int, dict[str, str], bytes]:
        """Answer a GET: status, headers, body."""
        url = urlsplit(target)
        match url.path.strip("/").split("/"):
            case ["orgs", organisation, "repos"]:
                answer = self._listing(organisation, int(parse_qs(url.query).get("page", ["1"])[0]))
            case ["repos", owner, name]:
                answer = self._repository(owner, name)
            case [owner, repository, *rest] if repository.endswith(".git"):
                answer = self._file(self.folder / owner / repository, rest)
            case _:
                answer = _json(404, {"message": "Not Found"})
        with self._lock:
            self.asked[answer[0]] += 1
        return answer

    def _listing(self, organisation: str, page: int) -> tuple[int, dict[str, str], bytes]:
        if organisation != ORGANISATION:
            return _json(404, {"message": "Not Found"})
        if page == 2 and self._is_first_time("listing"):
            reset = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": f"{time.time() + self.rest:.0f}"}
            return _json(403, {"message": "API rate limit exceeded"}, reset)
        names = [*NAMES, GONE]
        shown = names[(page - 1) * PER_PAGE : page * PER_PAGE]
        more = page * PER_PAGE < len(names)
        link = {"Link": f'<{self.url}/orgs/{organisation}/repos?page={page + 1}>; rel="next"'} if more else {}
        return _json(200, [self._shown(name) for name in shown], link)

    def _repository(self, owner: str, name: str) -> tuple[int, dict[str, str], bytes]:
        if owner != ORGANISATION or name not in NAMES:
            return _json(404, {"message": "Not Found"})
        if name == NAMES[2] and self._is_first_time(name):
            return _json(429, {"message": "slow down"}, {"Retry-After": f"{self.rest:g}"})
        if name == NAMES[4] and self._is_first_time(name):
            return _json(502, {"message": "Bad Gateway"})
        return _json(200, self._shown(name))

    def _shown(self, name: str) -> dict[str, Any]:
        return {"name": name, "clone_url": f"{self.url}/{ORGANISATION}/{name}.git"}

    def _file(self, repository: Path, rest: list[str]) -> tuple[int, dict[str, str], bytes]:
        """Serve git's plain transport: the files of a repository as they are."""
        file = repository.joinpath(*rest)
        if ".." in rest or not file.is_file():
            return 404, {}, b""
        return 200, {"Content-Type": "application/octet-stream"}, file.read_bytes()

    def _is_first_time(self, what: str) -> bool:
        with self._lock:
            first = what not in self._refused
            self._refused.add(what)
        return first

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        github = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, headers, body = github.answer(self.path)
                self.send_response(status)
                for name, value in (headers | {"Content-Length": str(len(body))}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


def _json(status: int, body: Any, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
    return status, {"Content-Type": "application/json"} | (headers or {}), json.dumps(body).encode()


def _make(repository: Path, name: str) -> None:
    repository.parent.mkdir(parents=True, exist_ok=True)
    git.run("init", "--quiet", "--bare", str(repository), folder=repository.parent)
    git.run("symbolic-ref", "HEAD", DEFAULT_BRANCH, folder=repository)
    grow(repository, [Growth(DEFAULT_BRANCH, f"{name} history", commits=12)])
    git.run("update-server-info", folder=repository)
