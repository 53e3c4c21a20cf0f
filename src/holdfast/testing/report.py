"""What a drain came to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from holdfast.app.handler import Handler
from holdfast.model.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainedAttempt:
    """One attempt that a drain ran.

    *result* is the stored result as plain JSON data; *reason* and *error* are what the database keeps of an
    attempt that did not complete; *delay* is how many seconds the job rests where it goes on.
    """

    job_id: int
    attempt: int
    kind: str
    queue: str
    outcome: Outcome
    result: Any = None
    reason: str | None = None
    error: str | None = None
    delay: float | None = None


@dataclass(frozen=True, slots=True)
class DrainReport:
    """The attempts of a drain in the order in which they ran."""

    attempts: tuple[DrainedAttempt, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many attempts came to each outcome: ``{"completed": 3, "retried": 1}``."""
        return dict(Counter(one.outcome.value for one in self.attempts))

    def of(self, kind: Handler[Any, Any] | str) -> list[DrainedAttempt]:
        """Return the attempts of one kind, given by its handler or its name."""
        name = kind if isinstance(kind, str) else kind.kind
        return [one for one in self.attempts if one.kind == name]
