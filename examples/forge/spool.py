"""Pushes that could not reach the database, kept as files beside their repository until a sweep comes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from examples.forge.pushes import Push

SUFFIX = ".spool"


def folder_of(repository: Path) -> Path:
    """Return the spool of a repository: ``name.spool`` beside ``name.git``."""
    return repository.with_suffix(SUFFIX)


def keep(repository: Path, push: Push) -> Path:
    """Keep *push* on disk.  It gets its name only once it is whole and safe from a power cut."""
    folder = folder_of(repository)
    folder.mkdir(exist_ok=True)
    draft = folder / f"{push.id}.draft"
    with draft.open("w", encoding="utf-8") as file:
        file.write(push.to_json())
        file.flush()
        os.fsync(file.fileno())
    kept = draft.rename(draft.with_suffix(".json"))
    _sync(folder)
    return kept


def kept(root: Path) -> Iterator[Path]:
    """Yield every kept push of all repositories, oldest first."""
    found = [(file.stat().st_mtime, file) for file in root.glob(f"*/*{SUFFIX}/*.json")]
    yield from (file for _, file in sorted(found))


def put_aside(file: Path) -> Path:
    """Take a file out of the sweep's way without losing it: somebody has to look at it."""
    return file.rename(file.with_suffix(".rejected"))


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
