"""Runs git, always with the same environment: no configuration of the user, no questions asked."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

# A ref that was created had this value before; one that was deleted has it after.
NOTHING = "0" * 40
IDENTITY = {"NAME": "Forge", "EMAIL": "forge@example.invalid"}


class GitFailed(Exception):
    """A git command ended with an error; the text is what git said."""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment for git: ours without any ``GIT_*``, with an identity, plus *extra*."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    fixed = {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
    for role in ("AUTHOR", "COMMITTER"):
        fixed |= {f"GIT_{role}_{part}": value for part, value in IDENTITY.items()}
    return plain | fixed | dict(extra or {})


def run(
    *arguments: str,
    folder: Path,
    text: str | None = None,
    timeout: float = 60.0,
    extra: Mapping[str, str] | None = None,
) -> str:
    """Run ``git`` in *folder* and return what it printed; *text* is its input, *extra* more environment.

    Raises `GitFailed`, also when it takes longer than *timeout* seconds.
    """
    try:
        ended = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env=environment(extra),
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        msg = f"git {arguments[0]} took longer than {timeout:g} s"
        raise GitFailed(msg) from None
    if ended.returncode != 0:
        msg = f"git {arguments[0]} ended with {ended.returncode}: {ended.stderr.strip()[:500]}"
        raise GitFailed(msg)
    return ended.stdout


def succeeds(*arguments: str, folder: Path) -> bool:
    """Return whether a git command that answers by its exit status says yes."""
    ended = subprocess.run(
        ["git", *arguments], cwd=folder, env=environment(), capture_output=True, check=False, timeout=60
    )
    return ended.returncode == 0
