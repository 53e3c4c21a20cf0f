"""Runs the command `holdfast` for the forge, away from the settings of whoever runs the demo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from examples.forge.settings import FILE_VARIABLE, Settings

SOURCES = Path(__file__).parents[3]


def command(*arguments: str) -> list[str]:
    """Return ``holdfast`` with these arguments, run by the interpreter that runs us."""
    return [sys.executable, "-m", "holdfast.cli.main", *arguments]


def environment(settings: Settings) -> dict[str, str]:
    """Return an environment in which the command finds the forge, and no proxy stands before loopback."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return plain | {
        "HOLDFAST_DATABASE_URL": settings.database_url,
        FILE_VARIABLE: str(settings.file),
        "PYTHONPATH": str(SOURCES),
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


def run(settings: Settings, *arguments: str) -> str:
    """Run a command to its end in the forge's folder and return what it printed."""
    ended = subprocess.run(
        command(*arguments),
        cwd=settings.root,
        env=environment(settings),
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode != 0:
        msg = f"holdfast {arguments[0]} ended with {ended.returncode}: {ended.stderr.strip()}"
        raise RuntimeError(msg)
    return ended.stdout
