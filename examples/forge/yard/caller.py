"""Asks the service over HTTP, as an operator's program does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import httpx

PATIENCE = 30.0


class Caller:
    """The service at an address, for whoever has *token*."""

    def __init__(self, address: str, token: str) -> None:
        # Loopback: no proxy of the machine has anything to do with it.
        self._http = httpx.Client(
            base_url=f"{address}/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            timeout=PATIENCE,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def _asked(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._http.request(method, path, **options).raise_for_status()

    def enqueue(self, jobs: list[dict[str, Any]]) -> list[int]:
        """Enqueue jobs, all or none, once, however often this is asked; answers their ids."""
        key = {"Idempotency-Key": "the errands of the second act"}
        made = self._asked("POST", "/jobs/batch", json={"jobs": jobs}, headers=key).json()
        return [handle["id"] for handle in made]

    def job(self, job_id: int) -> dict[str, Any]:
        """Return everything about a job."""
        story: dict[str, Any] = self._asked("GET", f"/jobs/{job_id}").json()
        return story

    def cancel(self, job_id: int, reason: str) -> None:
        """Cancel a job."""
        self._asked("POST", f"/jobs/{job_id}/cancel", json={"reason": reason})

    def acts(self) -> list[dict[str, Any]]:
        """Return what operators and machines did, newest first."""
        acts: list[dict[str, Any]] = self._asked("GET", "/audit", params={"limit": 100}).json()["acts"]
        return acts

    def log(self, job_id: int, attempt: int) -> bytes:
        """Return what the service has of an attempt's stdout; nothing where it never wrote."""
        path = f"/jobs/{job_id}/attempts/{attempt}/logs/stdout"
        answer = self._http.get(path)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return b""
        return answer.raise_for_status().content

    def follow(self, job_id: int, hear: Callable[[str], None]) -> None:
        """Call *hear* with every line of a job's log as it comes, until the job has ended."""
        with self._http.stream("GET", f"/jobs/{job_id}/events", timeout=None) as stream:
            name, rest = "", ""
            for line in stream.iter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif name == "log" and line.startswith("data: "):
                    *lines, rest = (rest + json.loads(line.removeprefix("data: ")).get("text", "")).split(
                        "\n"
                    )
                    for one in lines:
                        hear(one)


class Tail:
    """Follows the log of one job in a thread of its own."""

    def __init__(self, caller: Caller, job_id: int, show: Callable[[str], None]) -> None:
        self._caller, self.job_id, self._show = caller, job_id, show
        self.heard: list[str] = []
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def _follow(self) -> None:
        self._caller.follow(self.job_id, self._hear)

    def _hear(self, line: str) -> None:
        self.heard.append(line)
        self._show(line)
