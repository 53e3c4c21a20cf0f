"""How long a job rests after a failure.

Every backoff answers ``delay(failures, random)``: *failures* counts from 1, *random* returns a number
in [0, 1).  All but *Custom* can be stored with a job as a plain JSON object, in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.errors import BackoffInvalid

Random = Callable[[], float]

CUSTOM = "custom"
HOUR = timedelta(hours=1)
# Far past any sensible rest, and far below what a timestamp can hold.
LONGEST = timedelta(days=365)


def _jittered(seconds: float, jitter: float, random: Random) -> timedelta:
    if not jitter:
        return timedelta(seconds=seconds)
    return timedelta(seconds=seconds * (1 - jitter + 2 * jitter * random()))


def _seconds(time: timedelta) -> float:
    seconds = time.total_seconds()
    return int(seconds) if seconds.is_integer() else seconds


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _is_number(value: object) -> bool:
    # True and False are numbers to Python, and mistakes here.
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_times(policy: str, **times: object) -> None:
    for name, time in times.items():
        if not isinstance(time, timedelta):
            raise BackoffInvalid(policy, f"{name} is {_shown(time)}: give a timedelta")
        if not timedelta(0) <= time <= LONGEST:
            raise BackoffInvalid(policy, f"{name} is {time}: give a time from 0 to {LONGEST.days} days")


def _check_number(policy: str, name: str, value: object, *, least: float, most: float) -> None:
    # NaN fails both comparisons, and so the test.
    if not (isinstance(value, int | float) and _is_number(value) and least <= value <= most):
        raise BackoffInvalid(policy, f"{name} is {_shown(value)}: give a number from {least} to {most}")


def _rest_from(answer: object) -> timedelta:
    """Return a Custom function's answer as a rest, or raise BackoffInvalid."""
    if isinstance(answer, int | float) and _is_number(answer) and math.isfinite(answer):
        answer = timedelta(seconds=answer)
    if isinstance(answer, timedelta) and timedelta(0) <= answer <= LONGEST:
        return answer
    wanted = f"return a timedelta or seconds, from 0 to {LONGEST.days} days"
    raise BackoffInvalid(CUSTOM, f"the function returned {_shown(answer)}, the default is used: {wanted}")


def _check_parts(
    kind: str, parts: Mapping[str, Any], *, required: tuple[str, ...], optional: tuple[str, ...]
) -> None:
    for name in required:
        if name not in parts:
            raise BackoffInvalid(kind, f"{name} is missing: add it, in seconds")
    for name in parts:
        if name not in required + optional:
            known = ", ".join(required + optional)
            raise BackoffInvalid(kind, f"{_shown(name)} is unknown: use {known}")


def _timed(kind: str, parts: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return *parts* with the named ones turned from seconds into timedeltas."""
    timed = dict(parts)
    for name in names:
        if name in timed:
            _check_number(kind, name, timed[name], least=0, most=LONGEST.total_seconds())
            timed[name] = timedelta(seconds=timed[name])
    return timed


@dataclass(frozen=True, slots=True)
class Exponential:
    """Rests *base*, then *factor* times longer after each failure, at most *cap*.

    *jitter* 0.2 spreads each rest over ±20 %; it is applied after the cap.
    """

    base: timedelta = timedelta(seconds=30)
    factor: float = 2.0
    cap: timedelta = HOUR
    jitter: float = 0.2

    def __post_init__(self) -> None:
        _check_times("exponential", base=self.base, cap=self.cap)
        _check_number("exponential", "factor", self.factor, least=1, most=1_000_000)
        _check_number("exponential", "jitter", self.jitter, least=0, most=1)

    def delay(self, failures: int, random: Random) -> timedelta:
        """Return the rest after the *failures*-th failure; fewer than 1 counts as 1."""
        if not self.base:
            return timedelta(0)
        cap = self.cap.total_seconds()
        try:
            grown = self.base.total_seconds() * float(self.factor) ** (max(failures, 1) - 1)
        except OverflowError:
            grown = cap
        return _jittered(min(grown, cap), self.jitter, random)

    def to_json(self) -> dict[str, object]:
        """Return the policy as a plain JSON object, times in seconds."""
        return {
            "kind": "exponential",
            "base": _seconds(self.base),
            "factor": self.factor,
            "cap": _seconds(self.cap),
            "jitter": self.jitter,
        }


@dataclass(frozen=True, slots=True)
class Linear:
    """Rests one *step* longer after each failure, at most *cap*."""

    step: timedelta
    cap: timedelta = HOUR
    jitter: float = 0.0

    def __post_init__(self) -> None:
        _check_times("linear", step=self.step, cap=self.cap)
        _check_number("linear", "jitter", self.jitter, least=0, most=1)

    def delay(self, failures: int, random: Random) -> timedelta:
        """Return the rest after the *failures*-th failure; fewer than 1 counts as 1."""
        if not self.step:
            return timedelta(0)
        # Compared as a count first: a product with a huge number of failures fits no timedelta.
        steps = min(max(failures, 1), self.cap // self.step + 1)
        return _jittered(min(self.step * steps, self.cap).total_seconds(), self.jitter, random)

    def to_json(self) -> dict[str, object]:
        """Return the policy as a plain JSON object, times in seconds."""
        return {
            "kind": "linear",
            "step": _seconds(self.step),
            "cap": _seconds(self.cap),
            "jitter": self.jitter,
        }


@dataclass(frozen=True, slots=True)
class Constant:
    """Rests equally long after every failure."""

    rest: timedelta
    jitter: float = 0.0

    def __post_init__(self) -> None:
        _check_times("constant", delay=self.rest)
        _check_number("constant", "jitter", self.jitter, least=0, most=1)

    def delay(self, failures: int, random: Random) -> timedelta:  # noqa: ARG002 (the one shape of all backoffs)
        """Return the rest, whatever the number of failures."""
        return _jittered(self.rest.total_seconds(), self.jitter, random)

    def to_json(self) -> dict[str, object]:
        """Return the policy as a plain JSON object, times in seconds."""
        return {"kind": "constant", "delay": _seconds(self.rest), "jitter": self.jitter}


@dataclass(frozen=True, slots=True)
class Choice:
    """A rest and, where a Custom function gave no usable answer, the complaint that is worth a log line."""

    rest: timedelta
    complaint: BackoffInvalid | None = None


@dataclass(frozen=True, slots=True)
class Custom:
    """Rests as long as *function* says: failures -> timedelta or seconds.

    An unusable answer (negative, NaN, longer than 365 days, another type, an error of its own)
    gives the default rest instead, for a failed job must always find its way back.
    """

    function: Callable[[int], timedelta | float]

    def delay(self, failures: int, random: Random) -> timedelta:
        """Return the rest after the *failures*-th failure; fewer than 1 counts as 1."""
        return self.choose(failures, random).rest

    def choose(self, failures: int, random: Random) -> Choice:
        """Return the rest together with the complaint about the function's answer, if there is one."""
        failures = max(failures, 1)
        try:
            return Choice(_rest_from(self.function(failures)))
        except BackoffInvalid as invalid:
            complaint = invalid
        except (Exception, SystemExit) as slip:
            complaint = BackoffInvalid(CUSTOM, f"the function raised {slip!r}, the default is used: mend it")
        return Choice(DEFAULT_BACKOFF.delay(failures, random), complaint)

    def to_json(self) -> dict[str, object]:
        """Raise BackoffInvalid: a function cannot be stored with a job."""
        raise BackoffInvalid(CUSTOM, "a function cannot be stored with a job: set it on the kind instead")


Backoff = Exponential | Linear | Constant | Custom

DEFAULT_BACKOFF = Exponential()


def choose(backoff: Backoff, failures: int, random: Random) -> Choice:
    """Return the rest that *backoff* gives, with a complaint where its function gave no usable answer."""
    if isinstance(backoff, Custom):
        return backoff.choose(failures, random)
    return Choice(backoff.delay(failures, random))


def backoff_from_json(value: object) -> Backoff:
    """Return the backoff that ``to_json`` described; parts left out take their defaults.

    Raises BackoffInvalid naming the kind and the part that is wrong.
    """
    if not isinstance(value, Mapping):
        raise BackoffInvalid(_shown(value), "a retry policy is an object with a kind")
    kind, parts = value.get("kind"), {name: part for name, part in value.items() if name != "kind"}
    match kind:
        case "exponential":
            _check_parts(kind, parts, required=(), optional=("base", "factor", "cap", "jitter"))
            return Exponential(**_timed(kind, parts, "base", "cap"))
        case "linear":
            _check_parts(kind, parts, required=("step",), optional=("cap", "jitter"))
            return Linear(**_timed(kind, parts, "step", "cap"))
        case "constant":
            _check_parts(kind, parts, required=("delay",), optional=("jitter",))
            timed = _timed(kind, parts, "delay")
            return Constant(timed.pop("delay"), **timed)
    raise BackoffInvalid(_shown(kind), "the kind must be exponential, linear or constant")


def stored_backoff(text: str | None) -> Backoff | None:
    """Return the backoff that is stored with a job; None where there is none that can be read.

    Plain SQL can write past the checks of a client, and that must not keep an attempt from its end.
    """
    try:
        return None if text is None else backoff_from_json(msgspec.json.decode(text))
    except (BackoffInvalid, msgspec.DecodeError):
        return None
