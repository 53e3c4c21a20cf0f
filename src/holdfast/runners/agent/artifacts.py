"""Finds the files that a command wants kept, and sends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import ServerRefused, ServerUnavailable
from holdfast.model.assignment import ArtifactLimits
from holdfast.runners.agent.connection import Connection
from holdfast.runners.agent.messages import Assignment

# A file that cannot be sent is tried again for some ten minutes: a service is back from a deployment by then.
TRIES = 65
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0


@dataclass(frozen=True, slots=True)
class Found:
    """What the globs came to: files by name, and a sentence for each file left out."""

    files: dict[str, Path]
    left_out: list[str]


def find(folder: Path, globs: Sequence[str], limits: ArtifactLimits) -> Found:
    """Return the files below *folder* that fit one of the *globs* and the limits, by their relative names.

    Links that lead out of the folder are not followed: a program must not make its runner read for it.
    """
    folder = folder.resolve()
    files: dict[str, Path] = {}
    left_out: list[str] = []
    total = 0
    for name, path in _matches(folder, globs, left_out):
        try:
            name.encode()
            real = path.resolve()
            if not (real.is_relative_to(folder) and real.is_file()):
                continue
            size = real.stat().st_size
        except (OSError, RuntimeError, UnicodeEncodeError) as error:
            # A place that this user may not look into, a link in a circle, a name that is no text.
            left_out.append(f"artifact {name!a} is left out: {error}")
            continue
        if size > limits.file_bytes:
            left_out.append(f"artifact {name} is left out: {size:,} bytes, {limits.file_bytes:,} are allowed")
        elif len(files) >= limits.count or total + size > limits.total_bytes:
            left_out.append(f"artifact {name} is left out: there are too many")
        else:
            files[name] = real
            total += size
    return Found(files, left_out)


def _matches(folder: Path, globs: Sequence[str], left_out: list[str]) -> Iterator[tuple[str, Path]]:
    seen: set[str] = set()
    for glob in globs:
        if not glob or glob.startswith("/") or ".." in Path(glob).parts:
            continue
        try:
            paths = sorted(folder.glob(glob))
        except (OSError, ValueError) as error:
            left_out.append(f"artifacts {glob!a} are left out: {error}")
            continue
        for path in paths:
            name = path.relative_to(folder).as_posix()
            if name not in seen:
                seen.add(name)
                yield name, path


class FileSender:
    """Finds and sends the files of one assignment, until that is done or stopped.

    *kept* are the names of those that the server has; *say* is told of the others.
    """

    def __init__(self, connection: Connection, assignment: Assignment, say: Callable[[str], None]) -> None:
        self._connection, self._assignment, self._say = connection, assignment, say
        self.kept: list[str] = []
        self._rest: list[str] = []
        self._limit: asyncio.Timeout | None = None

    async def run(self, folder: Path, globs: Sequence[str], limits: ArtifactLimits) -> list[str]:
        """Find and send what is below *folder*; answers the names of what the server has."""
        self._rest = list(globs)
        try:
            async with asyncio.timeout(None) as self._limit:
                await self.send(await asyncio.to_thread(find, folder, globs, limits))
        except TimeoutError:
            self._say(f"artifacts are lost, as the job was stopped: {', '.join(self._rest)}")
        self._limit = None
        return self.kept

    def stop(self) -> None:
        """Send nothing more; safe to repeat, and where nothing is sent."""
        limit, self._limit = self._limit, None
        if limit is not None:
            limit.reschedule(asyncio.get_running_loop().time())

    async def send(self, found: Found) -> None:
        """Send these files, one after the other."""
        self._rest = list(found.files)
        for sentence in found.left_out:
            self._say(sentence)
        for name, path in found.files.items():
            problem = await self._send(name, path)
            self._rest.remove(name)
            if problem is None:
                self.kept.append(name)
            else:
                self._say(f"artifact {name} is lost: {problem}")

    async def _send(self, name: str, path: Path) -> str | None:
        """Send one file; answers what was wrong with it, or None."""
        try:
            data = await asyncio.to_thread(path.read_bytes)
        except OSError as error:
            return error.strerror or str(error)
        problem, pause = "", FIRST_PAUSE
        for _ in range(TRIES):
            try:
                await self._connection.keep(self._assignment, name, data)
            except ServerRefused as error:
                return error.problem
            except ServerUnavailable as error:
                problem = error.problem
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE, pause * 2)
            else:
                return None
        return problem
