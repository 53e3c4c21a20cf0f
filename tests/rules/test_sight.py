"""A look tells what has changed, and what it told before not again."""

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.change import Change
from holdfast.rules.sight import Sight

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Jobs:
    """Changes of a few jobs."""

    @staticmethod
    def one(job_id: int = 1, state: str = "running", attempt: int = 1, note: str | None = None) -> Change:
        """A job that stands so."""
        return Change(job_id, "q", "k", state, attempt, 0, None, None, note, False, None, NOW)


CHANGES = st.builds(Jobs.one, st.integers(1, 3), st.sampled_from(["available", "running"]), st.integers(1, 2))


@given(st.lists(st.lists(CHANGES)))
def test_a_job_is_told_exactly_when_it_stands_otherwise_than_last_told(looks: list[list[Change]]) -> None:
    """In the order in which it was seen."""
    sight = Sight()
    last: dict[int, Change] = {}
    for look in looks:
        expected = []
        for change in look:
            if last.get(change.job_id) != change:
                last[change.job_id] = change
                expected.append(change)
        assert sight.news(look) == expected


def test_the_reason_alone_is_no_news() -> None:
    """It comes from the look that saw the attempt end; another look sees the same job without it."""
    sight = Sight()
    assert sight.news([msgspec.structs.replace(Jobs.one(), reason="retried")])
    assert sight.news([Jobs.one()]) == []
    assert sight.news([Jobs.one(note="half")])


def test_only_so_many_jobs_are_remembered() -> None:
    """The ones that changed last; what was forgotten is told again, which does no harm."""
    sight = Sight(most=2)
    sight.news([Jobs.one(1), Jobs.one(2), Jobs.one(3)])
    assert sight.news([Jobs.one(2), Jobs.one(3)]) == []
    assert sight.news([Jobs.one(1)]) == [Jobs.one(1)]
