"""Reads the part of GitHub's API that an import needs."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Any
from urllib.parse import quote, urlsplit

PER_PAGE = 100
TIMEOUT = 20.0
MOST_BYTES = 10 * 1024 * 1024
# Rests after a rate limit whose end GitHub does not tell, and the longest one, in seconds.
USUAL_REST, LONGEST_REST = 60.0, 3600.0
_NEXT = re.compile(r'<([^>]+)>;\s*rel="next"')


class NotThere(Exception):
    """GitHub answers 404."""


class RateLimited(Exception):
    """GitHub asks for patience; *delay* says for how many seconds."""

    def __init__(self, delay: float) -> None:
        super().__init__(f"GitHub's rate limit is used up for {delay:.0f} s")
        self.delay = delay


class AnswerUnusable(Exception):
    """GitHub answered with something else than was asked for."""


@dataclass(frozen=True, slots=True)
class RemoteRepository:
    """A repository as GitHub shows it."""

    name: str
    clone_url: str


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing and the address of the next one, or None."""

    repositories: list[RemoteRepository]
    next_url: str | None


class GitHub:
    """A GitHub-shaped API at *base_url*."""

    def __init__(self, base_url: str) -> None:
        self._base = base_url.rstrip("/")

    def page(self, organisation: str, url: str | None = None) -> Page:
        """Read one page of an organisation's repositories: the first, or the one at *url*.

        Raises `NotThere`, `RateLimited`, `AnswerUnusable`, and OSError for whatever may pass.
        """
        first = f"{self._base}/orgs/{quote(organisation, safe='')}/repos?per_page={PER_PAGE}"
        listed, headers = self._get(url or first)
        if not isinstance(listed, list):
            msg = f"the repositories of {organisation!r} are no list"
            raise AnswerUnusable(msg)
        return Page([_repository(one) for one in listed], self._next(headers))

    def repository(self, organisation: str, name: str) -> RemoteRepository:
        """Read one repository; raises as `page` does."""
        shown, _ = self._get(f"{self._base}/repos/{quote(organisation, safe='')}/{quote(name, safe='')}")
        return _repository(shown)

    def _next(self, headers: Message) -> str | None:
        found = _NEXT.search(headers.get("Link", ""))
        if found is None:
            return None
        # A link that leads to another host would take us, and later our token, somewhere else.
        if urlsplit(found[1])[:2] != urlsplit(self._base)[:2]:
            msg = "the next page lies on another host"
            raise AnswerUnusable(msg)
        return found[1]

    def _get(self, url: str) -> tuple[Any, Message]:
        request = urllib.request.Request(  # noqa: S310 - the base address is the operator's setting
            url, headers={"Accept": "application/vnd.github+json", "User-Agent": "forge"}
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310 - as above
                return json.loads(answer.read(MOST_BYTES)), answer.headers
        except urllib.error.HTTPError as error:
            with error:  # its answer is a connection that has to be closed
                raise _meaning(error) from error
        except ValueError as error:
            msg = f"the answer is no JSON: {error}"
            raise AnswerUnusable(msg) from error


def _meaning(error: urllib.error.HTTPError) -> Exception:
    if error.code == 404:
        return NotThere(f"{error.url} does not exist")
    if error.code == 429 or (error.code == 403 and _is_used_up(error.headers)):
        return RateLimited(rest_asked_for(error.headers, now=time.time()))
    return error


def _is_used_up(headers: Mapping[str, str] | Message) -> bool:
    return headers.get("X-RateLimit-Remaining") == "0" or "Retry-After" in headers


def rest_asked_for(headers: Mapping[str, str] | Message, *, now: float) -> float:
    """Return how many seconds a rate-limited caller should rest; *now* is the time since the epoch."""
    retry_after, reset = headers.get("Retry-After"), headers.get("X-RateLimit-Reset")
    try:
        wanted = float(retry_after) if retry_after else float(reset) - now if reset else USUAL_REST
    except ValueError:
        wanted = USUAL_REST
    return min(LONGEST_REST, max(0.5, wanted))


def _repository(shown: Any) -> RemoteRepository:
    match shown:
        case {"name": str(name), "clone_url": str(clone_url)}:
            return RemoteRepository(name, clone_url)
    msg = "a repository has no name or no clone_url"
    raise AnswerUnusable(msg)
