"""Writes client/synchronous.py from client/asynchronous.py: the same client without async and await.

``make generate`` runs it; a test in tests/contracts fails when the result is not up to date.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

CLIENT = Path(__file__).parents[1] / "src" / "holdfast" / "client"
SOURCE, RESULT = CLIENT / "asynchronous.py", CLIENT / "synchronous.py"
HEADER = (
    "# Written by scripts/sync_client.py from asynchronous.py: change that one and run `make generate`.\n"
)

# Names in the code.  None drops the word together with the space behind it.
WORDS = {
    "async": None,
    "await": None,
    "asyncio": "time",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "Client": "SyncClient",
    "Enqueuer": "SyncEnqueuer",
    "Database": "SyncDatabase",
    "copy_jobs": "copy_jobs_sync",
    "database": "sync_database",
    "run_foreign": "run_foreign_sync",
    # A sync session says its isolation itself, behind a pooler too.
    "run_read_committed": "run",
}
# Prose in docstrings.
PHRASES = {
    "async applications": "sync applications",
    "async with Client": "with SyncClient",
    "own async one, of asyncpg, psycopg or SQLAlchemy": "own, of psycopg, SQLAlchemy or Django",
}

Edit = tuple[int, int, str]


def edits(source: str) -> Iterator[Edit]:
    """Yield what changes in *source*: from where, to where, and the new text."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        start = starts[token.start[0] - 1] + token.start[1]
        end = starts[token.end[0] - 1] + token.end[1]
        if token.type == tokenize.NAME and token.string in WORDS:
            word = WORDS[token.string]
            yield (start, end + 1, "") if word is None else (start, end, word)
        elif token.type == tokenize.STRING:
            prose = token.string
            for phrase, replacement in PHRASES.items():
                prose = prose.replace(phrase, replacement)
            yield start, end, prose


def translated(source: str) -> str:
    """Return the sync client for the text of the async one."""
    text = source
    for start, end, replacement in reversed(list(edits(source))):
        text = text[:start] + replacement + text[end:]
    left = re.search(r"\b(?:async|await|asyncio)\b", text)
    if left is not None:
        line = text[: left.start()].count("\n") + 1
        msg = f"{left[0]!r} is left in line {line} of the translation: add a rule to scripts/sync_client.py"
        raise SystemExit(msg)
    return ruff("format", ruff("check", HEADER + text, "--select", "I", "--fix-only", "--quiet"), "--quiet")


def ruff(command: str, text: str, *flags: str) -> str:
    """Return *text* as ruff leaves it."""
    call = [sys.executable, "-m", "ruff", command, *flags, "--stdin-filename", str(RESULT), "-"]
    done = subprocess.run(call, input=text, capture_output=True, text=True, check=True)  # noqa: S603 - our own ruff
    return done.stdout


if __name__ == "__main__":
    RESULT.write_text(translated(SOURCE.read_text("utf-8")), "utf-8")
