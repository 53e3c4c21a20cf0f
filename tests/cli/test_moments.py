"""Times and durations as people type and read them."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.cli.moments import ago, clock, exact, moment, seconds, span
from holdfast.errors import OptionInvalid

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("length", "told"),
    [
        (0, "0s"),
        (0.04, "0s"),
        (0.25, "0.2s"),
        (5, "5s"),
        (9.96, "10s"),
        (10.4, "10s"),
        (59.6, "1m"),
        (60, "1m"),
        (61, "1m 1s"),
        (3600, "1h"),
        (3605, "1h"),
        (3660, "1h 1m"),
        (90_000, "1d 1h"),
        (86_400 * 400, "400d"),
        (-61, "1m 1s"),
    ],
)
def test_a_length_is_told_in_its_two_largest_units(length: float, told: str) -> None:
    """Nobody wants the seconds of a week."""
    assert span(timedelta(seconds=length)) == told


def test_a_moment_is_told_by_its_distance() -> None:
    """Before, after and never."""
    assert ago(NOW - timedelta(minutes=5), NOW) == "5m ago"
    assert ago(NOW + timedelta(hours=2), NOW) == "in 2h"
    assert ago(None, NOW) is None
    assert clock(NOW + timedelta(milliseconds=7)) == "2026-03-01 12:00:00.007"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2026-03-01T11:00Z", datetime(2026, 3, 1, 11, tzinfo=UTC)),
        ("2026-03-01 11:00", datetime(2026, 3, 1, 11, tzinfo=UTC)),
        ("2026-03-01T12:00+01:00", datetime(2026, 3, 1, 11, tzinfo=UTC)),
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2h", NOW - timedelta(hours=2)),
        ("90", NOW - timedelta(seconds=90)),
    ],
)
def test_a_moment_is_read_with_and_without_zone_or_as_a_distance(text: str, meant: datetime) -> None:
    """What names no zone is UTC."""
    assert moment("--since", text, NOW) == meant


@pytest.mark.parametrize("text", ["yesterday", "-5m", "", "99999999d", "2026-13-01"])
def test_what_is_no_moment_is_named(text: str) -> None:
    """The option and what was typed are in the sentence."""
    with pytest.raises(OptionInvalid, match="--since is "):
        moment("--since", text, NOW)


def test_a_due_time_is_no_distance() -> None:
    """A job cannot be due two hours ago by a slip."""
    with pytest.raises(OptionInvalid, match="--run-at is '2h'"):
        exact("--run-at", "2h")
    assert exact("--run-at", None) is None


def test_a_duration_is_read_in_units() -> None:
    """A number alone means seconds."""
    assert seconds("--delay", "5m") == 300.0
    assert seconds("--delay", None) is None
    with pytest.raises(OptionInvalid, match="--delay is 'soon'"):
        seconds("--delay", "soon")


@pytest.mark.parametrize("text", ["0001-01-01T00:00+12:00", "9999-12-31T23:00-12:00"])
def test_a_moment_that_utc_does_not_have_is_refused(text: str) -> None:
    """PostgreSQL's driver could not say of which option it speaks."""
    told = r"is '.*': it lies outside the years 1 to 9999 in UTC$"
    with pytest.raises(OptionInvalid, match=f"^--run-at {told}"):
        exact("--run-at", text)
    with pytest.raises(OptionInvalid, match=f"^--since {told}"):
        moment("--since", text, NOW)
