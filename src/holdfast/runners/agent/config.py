"""What a runner is told once, at its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from holdfast.model.assignment import MEBIBYTE, ArtifactLimits
from holdfast.rules.backoff import Backoff

# What a command gets of the runner's own environment, if it is there: enough to find programs and a home.
PASSED_ON = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """One runner.

    *token* registers it; without one the token of an earlier registration in *folder* is used.  *app* is the
    address of an application whose kinds it runs beside commands, *kinds* are those, and *backoffs* say how
    long the failures of some of them rest.  *once* ends it after one assignment, *idle_exit* after so many
    seconds without any.  *environment* is what programs start from.
    """

    server: str
    name: str
    folder: Path
    host: str
    version: str
    token: str | None = None
    labels: tuple[str, ...] = ()
    queues: tuple[str, ...] = ("default",)
    capacity: dict[str, int] = field(default_factory=dict)
    slots: int = 4
    app: str | None = None
    kinds: tuple[str, ...] = ()
    backoffs: dict[str, Backoff] = field(default_factory=dict)
    grace: float = 30.0
    once: bool = False
    idle_exit: float | None = None
    log_buffer: int = 64 * MEBIBYTE
    artifacts: ArtifactLimits = field(default_factory=ArtifactLimits)
    environment: dict[str, str] = field(default_factory=dict)
