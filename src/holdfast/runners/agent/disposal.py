"""Deletes what assignments leave, also what they have made read-only."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from shutil import rmtree


def discard(folder: Path) -> None:
    """Delete a folder as far as that can be done; it need not be there."""
    rmtree(folder, ignore_errors=True)
    if folder.exists():
        _open(folder)
        # Each folder is opened before the walk enters it.  No link is followed, for it may lead elsewhere.
        for place, names, _ in os.walk(folder):
            for inner in (Path(place, name) for name in names):
                if not inner.is_symlink():
                    _open(inner)
        rmtree(folder, ignore_errors=True)


def _open(folder: Path) -> None:
    with suppress(OSError):
        folder.chmod(0o700)
