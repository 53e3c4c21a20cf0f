"""What was measured: by which method, which code of Holdfast, and which version of every peer."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import msgspec

from bench import environments
from bench.catalogue import Contestant, Language
from bench.environments import REQUIREMENTS

# Goes up whenever figures can no longer be held beside those that were made before.
METHOD = 2
# What decides about figures; what is published of them lies there too, and does not.
MEASURED = ("src", "bench", "requirements", ":(exclude)bench/README.md", ":(exclude)bench/results.json")
PINNED = re.compile(r"^([\w-]+)(?:\[.*\])?==(\S+)$", re.MULTILINE)
UNKNOWN = "unknown"


class Code(msgspec.Struct, frozen=True):
    """The *commit* that last touched what is measured, and whether that *is_changed* since."""

    commit: str = UNKNOWN
    is_changed: bool = False

    def __str__(self) -> str:
        return f"{self.commit[:10]}{', changed since' if self.is_changed else ''}"

    @property
    def is_certain(self) -> bool:
        """Whether others can have the same code: what was changed is known to nobody."""
        return self.commit != UNKNOWN and not self.is_changed


def code_of(home: Path) -> Code:
    """Return the code that lies in *home*; nothing is known of what is no clone of the repository."""
    commit = _git(home, "log", "-1", "--format=%H", "--", *MEASURED)
    return Code(commit, bool(_git(home, "status", "--porcelain", "--", *MEASURED))) if commit else Code()


def _git(home: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=home, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def versions(peers: Iterable[Contestant]) -> dict[str, str]:
    """Return what each of the peers is and runs on, by label."""
    return {one.label: version(one) for one in peers}


def version(peer: Contestant) -> str:
    """Return the pinned packages of a peer, and what runs them."""
    return f"{', '.join(_pinned(peer))} on {peer.language} {environments.interpreter(peer) or UNKNOWN}"


def _pinned(peer: Contestant) -> list[str]:
    folder = REQUIREMENTS / str(peer.environment)
    if peer.language is Language.NODE:
        asked = json.loads((folder / "package.json").read_text("utf-8"))["dependencies"]
        return [f"{name} {number}" for name, number in asked.items()]
    found = PINNED.findall(folder.with_suffix(".in").read_text("utf-8"))
    return [f"{name} {number}" for name, number in found]
