"""Finds the files that a command wants kept, and sends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import ServerRefused, ServerUnavailable
from holdfast.runners.agent.config import ArtifactLimits
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
    files: dict[str, Path] = {}
    left_out: list[str] = []
    total = 0
    for name, path in _matches(folder.resolve(), globs):
        size = path.stat().st_size
        if size > limits.file_bytes:
            left_out.append(f"artifact {name} is left out: {size:,} bytes, {limits.file_bytes:,} are allowed")
        elif len(files) >= limits.count or total + size > limits.total_bytes:
            left_out.append(f"artifact {name} is left out: there are too many")
        else:
            files[name] = path
            total += size
    return Found(files, left_out)


def _matches(folder: Path, globs: Sequence[str]) -> Iterator[tuple[str, Path]]:
    seen: set[str] = set()
    for glob in globs:
        if not glob or glob.startswith("/") or ".." in Path(glob).parts:
            continue
        for path in sorted(folder.glob(glob)):
            name = path.relative_to(folder).as_posix()
            real = path.resolve()
            if name not in seen and real.is_relative_to(folder) and real.is_file():
                seen.add(name)
                yield name, real


async def send(
    connection: Connection, assignment: Assignment, found: Found, say: Callable[[str], None]
) -> list[str]:
    """Send the files; answers the names of those that are kept.  *say* is told of the others."""
    for sentence in found.left_out:
        say(sentence)
    kept: list[str] = []
    for name, path in found.files.items():
        data = await asyncio.to_thread(path.read_bytes)
        problem = await _send(connection, assignment, name, data)
        if problem is None:
            kept.append(name)
        else:
            say(f"artifact {name} is lost: {problem}")
    return kept


async def _send(connection: Connection, assignment: Assignment, name: str, data: bytes) -> str | None:
    """Send one file; answers what was wrong with it, or None."""
    problem, pause = "", FIRST_PAUSE
    for _ in range(TRIES):
        try:
            await connection.keep(assignment, name, data)
        except ServerRefused as error:
            return error.problem
        except ServerUnavailable as error:
            problem = error.problem
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)
        else:
            return None
    return problem
