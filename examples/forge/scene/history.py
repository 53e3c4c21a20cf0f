"""Real commits, made quickly: one ``git fast-import`` each time, without a working copy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from examples.forge import git

EPOCH = 1_700_000_000


@dataclass(frozen=True, slots=True)
class Growth:
    """Commits to be made on *ref*, on top of *parent* or from nothing; *label* tells them apart."""

    ref: str
    label: str
    commits: int = 1
    parent: str | None = None


def grow(repository: Path, growths: list[Growth]) -> dict[str, str]:
    """Make the commits in a repository; answers where each ref points then."""
    stream = "".join(_stream(growth, number) for number, growth in enumerate(growths, 1))
    marks = git.run("fast-import", "--quiet", "--force", folder=repository, text=stream).split()
    return {growth.ref: sha for growth, sha in zip(growths, marks, strict=True)}


def _stream(growth: Growth, mark: int) -> str:
    commits = "".join(_commit(growth, mark, nth) for nth in range(growth.commits))
    return f"{commits}get-mark :{mark}\n"


def _commit(growth: Growth, mark: int, nth: int) -> str:
    message = f"{growth.label}, part {nth + 1}"
    content = f"{message}\n" * (5 + nth)
    parent = f"from {growth.parent}\n" if nth == 0 and growth.parent else ""
    file = f"notes/{growth.label.split()[0]}-{nth % 7}.txt"
    return (
        f"commit {growth.ref}\nmark :{mark}\ncommitter Forge <forge@example.invalid> {EPOCH + nth} +0000\n"
        f"{_data(message)}{parent}M 100644 inline {file}\n{_data(content)}\n"
    )


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}\n"
