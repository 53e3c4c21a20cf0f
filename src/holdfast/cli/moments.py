"""Times and durations as people type and read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.app.options import in_utc
from holdfast.errors import OptionInvalid
from holdfast.runtime.values import duration

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_WANTED = "give seconds, a number with ms, s, m, h or d, or a time such as 2026-03-01T12:00Z"


def seconds(option: str, text: str | None) -> float | None:
    """Return a duration such as 90, 90s or 5m in seconds; raises `OptionInvalid`."""
    if text is None:
        return None
    rule = duration(0)
    try:
        value: float = rule.read(text)
    except ValueError:
        raise OptionInvalid(option, text, f"give {rule.allowed}") from None
    return value


def exact(option: str, text: str | None) -> datetime | None:
    """Return a time in ISO 8601, in UTC where it names no zone; raises `OptionInvalid`."""
    if text is None:
        return None
    found = _read(text)
    if found is None:
        raise OptionInvalid(option, text, "give a time such as 2026-03-01T12:00Z")
    return in_utc(option, found)


def moment(option: str, text: str | None, now: datetime) -> datetime | None:
    """Return a time in ISO 8601, in UTC where it names no zone, or one so long before *now*, such as 2h."""
    if text is None:
        return None
    found = _read(text)
    return _before(option, text, now) if found is None else in_utc(option, found)


def _read(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _before(option: str, text: str, now: datetime) -> datetime:
    try:
        return now - timedelta(seconds=duration(0).read(text))
    except (ValueError, OverflowError):
        raise OptionInvalid(option, text, _WANTED) from None


def span(length: timedelta) -> str:
    """Return a duration in its two largest units, such as 3h 5m."""
    left = abs(length).total_seconds()
    if left < 10:
        return f"{round(left, 1):g}s"
    left = round(left)
    parts: list[str] = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


def took(length: timedelta) -> str:
    """Return how long something took, below a second in ms."""
    length = abs(length)
    return span(length) if length >= timedelta(seconds=1) else f"{length / timedelta(milliseconds=1):.0f}ms"


def ago(moment: datetime | None, now: datetime) -> str | None:
    """Return how long *moment* is from *now*, such as 5m ago or in 5m."""
    if moment is None:
        return None
    return f"in {span(moment - now)}" if moment > now else f"{span(now - moment)} ago"


def clock(moment: datetime | None) -> str | None:
    """Return a time to the millisecond, in UTC."""
    if moment is None:
        return None
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]
