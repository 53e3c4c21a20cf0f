"""How the service is served."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.rules.liveness import Intervals

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """Where the service listens and what it takes.

    *rate* is how many requests a second each token may make; from *proxies* the address of a caller is
    believed.  *body_limit* bounds a request, in bytes.
    *intervals* are those of runners, which may write *log_limit* bytes of log for one job.  Who takes
    nothing of what is sent for *reader_patience* seconds is cut off, and so is who takes longer than
    *head_patience* to say what they ask for, or sends nothing of a body for *body_patience*.
    """

    host: str = "127.0.0.1"
    port: int = 8700
    rate: float = 500.0
    proxies: tuple[str, ...] = ()
    reader_patience: float = 30.0
    head_patience: float = 15.0
    body_patience: float = 60.0
    body_limit: int = 4 * 1024 * 1024
    intervals: Intervals = field(default_factory=Intervals)
    log_limit: int = 64 * 1024 * 1024
    failures_burst: float = 20.0
    failures_rate: float = 0.2

    @property
    def is_local(self) -> bool:
        """True where nobody but this machine can come in."""
        return self.host in LOOPBACK
