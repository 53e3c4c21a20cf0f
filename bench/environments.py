"""An environment for each peer, made on demand from its pinned requirements."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bench.catalogue import Contestant, Language

HOME = Path(__file__).parent
ENVIRONMENTS = HOME / ".venvs"
REQUIREMENTS = HOME / "requirements"
READY = ".ready"
# Names an interpreter for peers that need a newer Python than the one that runs the benchmark.
PYTHON_VARIABLE = "BENCH_PYTHON"
# The Python of Holdfast, and of every peer that runs on it.
OURS = sys.version_info[:2]
MADE_WITH = re.compile(r"^version = (\S+)", re.MULTILINE)


class EnvironmentMissing(Exception):
    """A peer cannot run on this machine; the message says what is missing."""


def command(peer: Contestant) -> list[str]:
    """Return the command of a peer's adapter; raises `EnvironmentMissing` where it was not prepared."""
    if peer.environment is None:
        return [sys.executable, "-m", f"bench.peers.{peer.name}"]
    if not is_ready(peer):
        msg = f"the environment of {peer.label} is not there: run `make bench-peers`"
        raise EnvironmentMissing(msg)
    if peer.language is Language.NODE:
        return [_found("node"), str(HOME / "peers" / f"{peer.name}.mjs")]
    return [str(_folder(peer) / "bin" / "python"), "-m", f"bench.peers.{peer.name}"]


def inherited() -> dict[str, str]:
    """Return the environment of this program without what only those who connect by libpq would obey."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def variables(peer: Contestant) -> dict[str, str]:
    """Return what an adapter finds in its environment."""
    return inherited() | {
        "BENCH_MODULES": str(_folder(peer)),
        "NODE_ENV": "production",
        "NO_LOG_SUCCESS": "1",
    }


def is_ready(peer: Contestant) -> bool:
    """Whether a peer's environment is there, is the one its requirements ask for, and of the right Python."""
    if peer.environment is None:
        return True
    marker = _folder(peer) / READY
    if not marker.exists() or marker.read_bytes() != _asked(peer):
        return False
    return peer.language is Language.NODE or is_fitting(_minor(interpreter(peer)), peer.needs_python)


def is_fitting(python: tuple[int, ...], least: tuple[int, int]) -> bool:
    """Whether a peer that needs *least* is to run on *python*: on Holdfast's own wherever that is enough."""
    return python == OURS if least <= OURS else python >= least


def interpreter(peer: Contestant) -> str:
    """Return the version of what runs a peer's adapter, nothing where that cannot be told."""
    if peer.language is Language.NODE:
        told = subprocess.run([_found("node"), "--version"], capture_output=True, text=True, check=False)
        return told.stdout.strip().removeprefix("v")
    made = _folder(peer) / "pyvenv.cfg"
    found = MADE_WITH.search(made.read_text("utf-8")) if made.exists() else None
    return found[1] if found else ""


def prepare(peer: Contestant) -> None:
    """Make a peer's environment where it is not ready; raises `EnvironmentMissing`."""
    if is_ready(peer):
        return
    folder = _folder(peer)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        _make_node(peer) if peer.language is Language.NODE else _make_python(peer)
    except subprocess.CalledProcessError as error:
        reason = (error.stderr or "").strip().splitlines()
        msg = f"{peer.label} could not be installed: {reason[-1] if reason else error}"
        raise EnvironmentMissing(msg) from None
    (folder / READY).write_bytes(_asked(peer))


def _make_python(peer: Contestant) -> None:
    _run(_python(peer.needs_python), "-m", "venv", str(_folder(peer)))
    pip = (
        str(_folder(peer) / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "-qq",
        "--disable-pip-version-check",
    )
    _run(*pip, "--no-deps", "--require-hashes", "-r", str(REQUIREMENTS / f"{peer.environment}.txt"))


def _make_node(peer: Contestant) -> None:
    folder = _folder(peer)
    folder.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(REQUIREMENTS / str(peer.environment) / name, folder / name)
    _run(_found("npm"), "ci", "--no-audit", "--no-fund", "--loglevel=error", folder=folder)


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def _python(least: tuple[int, int]) -> str:
    if least <= OURS:
        return sys.executable
    for candidate in _pythons():
        probe = f"import sys, venv; sys.exit(sys.version_info < {least!r})"
        # A name may be a stand-in for a Python that is not there, or that of nothing at all.
        with suppress(OSError):
            if subprocess.run([candidate, "-c", probe], capture_output=True, check=False).returncode == 0:
                return candidate
    msg = f"needs Python {least[0]}.{least[1]}: put one on the PATH or name one in {PYTHON_VARIABLE}"
    raise EnvironmentMissing(msg)


def _pythons() -> Iterator[str]:
    if chosen := os.environ.get(PYTHON_VARIABLE):
        yield chosen
    for minor in (12, 13, 14):
        if found := shutil.which(f"python3.{minor}"):
            yield found


def _found(program: str) -> str:
    if found := shutil.which(program):
        return found
    msg = f"needs {program} on the PATH"
    raise EnvironmentMissing(msg)


def _folder(peer: Contestant) -> Path:
    return ENVIRONMENTS / (peer.environment or "own")


def _asked(peer: Contestant) -> bytes:
    if peer.language is Language.NODE:
        return (REQUIREMENTS / str(peer.environment) / "package-lock.json").read_bytes()
    return (REQUIREMENTS / f"{peer.environment}.txt").read_bytes()


def _run(*arguments: str, folder: Path | None = None) -> None:
    subprocess.run(arguments, cwd=folder, check=True, capture_output=True, text=True)
