"""Buckets: never more than the pace allows, in any order of asking."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.rules.pace import Pace, full, patience, taken

PACES = st.builds(Pace, rate=st.floats(0.1, 1000), burst=st.integers(1, 100).map(float))


@given(PACES, st.lists(st.floats(0, 10), max_size=60))
def test_no_more_is_taken_than_the_pace_allows(pace: Pace, pauses: list[float]) -> None:
    """From the start until any moment: the burst and what has flowed in since, at most."""
    now, bucket, count = 0.0, full(pace, 0.0), 0
    for pause in pauses:
        now += pause
        after = taken(bucket, pace, now)
        if after is not None:
            bucket, count = after, count + 1
        assert count <= pace.burst + now * pace.rate + 1e-6


@given(PACES)
def test_patience_says_when_the_next_one_is_allowed(pace: Pace) -> None:
    """After an empty bucket's patience one more is allowed, and well before it none is."""
    bucket = full(pace, 0.0)
    while (after := taken(bucket, pace, 0.0)) is not None:
        bucket = after
    wait = patience(bucket, pace, 0.0)
    assert taken(bucket, pace, wait + 1e-6) is not None
    assert taken(bucket, pace, wait * 0.9) is None


def test_a_clock_that_goes_back_gives_nothing() -> None:
    """Time that is taken back is not paid for twice."""
    pace = Pace(1.0, 1.0)
    bucket = taken(full(pace, 10.0), pace, 10.0)
    assert bucket is not None
    assert taken(bucket, pace, 5.0) is None
