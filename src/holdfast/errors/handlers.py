"""What goes wrong around handlers."""

from __future__ import annotations

from holdfast.errors.root import HoldfastError


class DrainEndless(HoldfastError):
    """A drain ran as many attempts as it may, and jobs are still due."""

    def __init__(self, *, limit: int, kind: str, times: int) -> None:
        super().__init__(
            f"drain ran {limit} attempts and is not done, {times} of them of kind {kind!r}: "
            "does it snooze, retry or enqueue itself for ever? If not, raise limit="
        )
        self.limit, self.kind, self.times = limit, kind, times


class ChildDied(HoldfastError):
    """The child process of a handler ended before its handler did; *end* says how."""

    def __init__(self, end: str) -> None:
        super().__init__(f"the handler's process {end}")
        self.end = end


class DependencyMissing(HoldfastError):
    """An optional package is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed: pip install 'holdfast[{extra}]'")
        self.what, self.extra = what, extra


class Poison(HoldfastError):
    """Raise it in a handler when the job can never succeed: it fails at once, without retries."""
