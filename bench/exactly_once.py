"""The check behind every figure: each job was executed, and none of them twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

SHOWN = 5


class NotExactlyOnce(Exception):
    """A drain lost jobs, ran some twice, or ran what nobody asked for: its figure means nothing."""


def check_exactly_once(executed: Iterable[Sequence[int]], expected: range) -> None:
    """Hold what all processes executed against what was asked; raises `NotExactlyOnce`."""
    counts = Counter(number for numbers in executed for number in numbers)
    problems = {
        "executed more than once": [number for number, times in counts.items() if times > 1],
        "never executed": [number for number in expected if number not in counts],
        "never asked for": [number for number in counts if number not in expected],
    }
    found = [f"{len(numbers)} {what}{_some(numbers)}" for what, numbers in problems.items() if numbers]
    if found:
        msg = f"of {len(expected)} jobs: {'; '.join(found)}"
        raise NotExactlyOnce(msg)


def check_at_most_once(executed: Iterable[Sequence[int]]) -> None:
    """Hold only against duplicates, where a drain was stopped before its end; raises `NotExactlyOnce`."""
    counts = Counter(number for numbers in executed for number in numbers)
    twice = [number for number, times in counts.items() if times > 1]
    if twice:
        msg = f"{len(twice)} executed more than once{_some(twice)}"
        raise NotExactlyOnce(msg)


def check_completed(completed: int, runs: int) -> None:
    """Hold the runs that the database calls completed against all there were; raises `NotExactlyOnce`."""
    if completed != runs:
        msg = f"{completed} of {runs} runs completed"
        raise NotExactlyOnce(msg)


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in sorted(numbers)[:SHOWN])
    return f" ({shown}{', …' if len(numbers) > SHOWN else ''})"
