"""Backoff: how long a job rests after a failure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BackoffInvalid
from holdfast.rules.backoff import (
    DEFAULT_BACKOFF,
    LONGEST,
    Backoff,
    Constant,
    Custom,
    Exponential,
    Linear,
    backoff_from_json,
    choose,
)

STEADY = Exponential(jitter=0)
MIDDLE = 0.5  # the chance that leaves a rest as it is

chances = st.floats(min_value=0, max_value=1, exclude_max=True)
times = st.timedeltas(min_value=timedelta(0), max_value=LONGEST)
jitters = st.floats(min_value=0, max_value=1)
storable = st.one_of(
    st.builds(Exponential, base=times, factor=st.floats(1, 1_000_000), cap=times, jitter=jitters),
    st.builds(Linear, step=times, cap=times, jitter=jitters),
    st.builds(Constant, rest=times, jitter=jitters),
)


def middle() -> float:
    return MIDDLE


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(1, 30), (2, 60), (3, 120), (4, 240), (5, 480), (6, 960), (7, 1920), (8, 3600), (9, 3600)],
)
def test_default_doubles_from_30_seconds_up_to_an_hour(failures: int, seconds: int) -> None:
    """Each failure doubles the rest until the cap of one hour."""
    assert DEFAULT_BACKOFF.delay(failures, middle) == timedelta(seconds=seconds)


@pytest.mark.parametrize("failures", [0, -1, -(10**30)])
@pytest.mark.parametrize("backoff", [STEADY, Linear(timedelta(seconds=30))])
def test_zero_and_negative_failures_count_as_the_first(backoff: Backoff, failures: int) -> None:
    """A count below 1 rests as long as the first failure."""
    assert backoff.delay(failures, middle) == timedelta(seconds=30)


@pytest.mark.parametrize("failures", [100, 1_025, 10**10, 10**400])
@pytest.mark.parametrize("backoff", [STEADY, Linear(timedelta(minutes=1))])
def test_huge_numbers_of_failures_rest_for_the_cap(backoff: Backoff, failures: int) -> None:
    """No number of failures overflows."""
    assert backoff.delay(failures, middle) == timedelta(hours=1)


@given(failures=st.integers(), chance=chances)
def test_default_jitter_stays_within_a_fifth(failures: int, chance: float) -> None:
    """The default's rest lies within 20 % of the steady one, whatever the chance."""
    steady = STEADY.delay(failures, middle)
    rest = DEFAULT_BACKOFF.delay(failures, lambda: chance)
    assert steady * 0.8 <= rest <= steady * 1.2


def test_jitter_uses_its_whole_range() -> None:
    """The lowest chance gives 80 % of the rest, a chance close to 1 nearly 120 %."""
    assert DEFAULT_BACKOFF.delay(1, lambda: 0.0) == timedelta(seconds=24)
    assert DEFAULT_BACKOFF.delay(1, lambda: 0.999999) > timedelta(seconds=35.9)


@given(failures=st.integers(min_value=1, max_value=10**6), backoff=storable)
def test_more_failures_never_rest_shorter(failures: int, backoff: Backoff) -> None:
    """With the same chance a later failure rests at least as long as an earlier one."""
    assert backoff.delay(failures, middle) <= backoff.delay(failures + 1, middle)


def test_linear_grows_by_its_step_up_to_its_cap() -> None:
    """The rest grows by one step per failure and stops at the cap."""
    linear = Linear(timedelta(seconds=20), cap=timedelta(seconds=50))
    assert [linear.delay(n, middle).total_seconds() for n in (1, 2, 3, 4)] == [20, 40, 50, 50]


def test_constant_rests_equally_long() -> None:
    """The number of failures does not matter to a constant backoff."""
    assert {Constant(timedelta(seconds=7)).delay(n, middle) for n in (0, 1, 50)} == {timedelta(seconds=7)}


@pytest.mark.parametrize(
    "backoff", [Exponential(base=timedelta(0)), Linear(timedelta(0)), Constant(timedelta(0))]
)
def test_zero_time_means_no_rest(backoff: Backoff) -> None:
    """A time of zero retries at once after any number of failures."""
    assert backoff.delay(10**400, middle) == timedelta(0)


@pytest.mark.parametrize("answer", [timedelta(minutes=2), 120, 120.0])
def test_custom_function_answers_in_timedelta_or_seconds(answer: timedelta | float) -> None:
    """A timedelta, an int and a float mean the same."""
    choice = Custom(lambda _: answer).choose(3, middle)
    assert choice.rest == timedelta(minutes=2)
    assert choice.complaint is None


def test_custom_function_hears_the_number_of_failures() -> None:
    """The function is given the failures, never fewer than 1."""
    custom = Custom(lambda failures: failures * 10)
    assert [custom.delay(n, middle).total_seconds() for n in (-4, 1, 3)] == [10, 10, 30]


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (-1, "-1"),
        (timedelta(seconds=-1), "timedelta"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        (10**400, "OverflowError"),
        (LONGEST + timedelta(seconds=1), "timedelta"),
        ("soon", "'soon'"),
        (None, "None"),
        (True, "True"),
    ],
)
def test_unusable_answer_falls_back_to_the_default_with_a_complaint(answer: object, shown: str) -> None:
    """A bad answer costs the job nothing, and the complaint shows it."""
    choice = Custom(lambda _: answer).choose(2, middle)  # type: ignore[arg-type, return-value]
    assert choice.rest == timedelta(seconds=60)
    assert shown in str(choice.complaint)


def test_slip_in_a_custom_formula_falls_back_to_the_default() -> None:
    """A formula that divides by zero gives the default rest, and the complaint says why."""
    choice = choose(Custom(lambda failures: 1 / (failures - 1)), 1, middle)
    assert choice.rest == timedelta(seconds=30)
    assert "ZeroDivisionError" in str(choice.complaint)


def test_choose_has_no_complaint_about_a_ready_made_backoff() -> None:
    """The one way to ask works for every backoff."""
    choice = choose(Constant(timedelta(seconds=5)), 1, middle)
    assert (choice.rest, choice.complaint) == (timedelta(seconds=5), None)


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: Exponential(base=timedelta(seconds=-1)), "base"),
        (lambda: Exponential(cap=LONGEST * 2), "cap"),
        (lambda: Exponential(factor=0.5), "factor"),
        (lambda: Exponential(factor=math.nan), "factor"),
        (lambda: Exponential(jitter=1.01), "jitter"),
        (lambda: Exponential(jitter=math.nan), "jitter"),
        (lambda: Exponential(jitter=True), "jitter"),
        (lambda: Linear(timedelta(seconds=-1)), "step"),
        (lambda: Linear(timedelta(1), jitter=-0.1), "jitter"),
        (lambda: Constant(30), "delay"),  # type: ignore[arg-type]
        (lambda: Constant(timedelta(days=-1)), "delay"),
    ],
)
def test_bad_policy_is_refused_when_it_is_built(build: Callable[[], Backoff], named: str) -> None:
    """The error names the part that is wrong."""
    with pytest.raises(BackoffInvalid, match=named):
        build()


@given(backoff=storable)
def test_stored_policy_comes_back_equal(backoff: Backoff) -> None:
    """JSON text and back gives the same policy."""
    assert backoff_from_json(json.loads(json.dumps(backoff.to_json()))) == backoff


def test_stored_policy_reads_in_whole_seconds() -> None:
    """The default is stored as plain numbers of seconds."""
    expected = {"kind": "exponential", "base": 30, "factor": 2.0, "cap": 3600, "jitter": 0.2}
    assert json.dumps(DEFAULT_BACKOFF.to_json()) == json.dumps(expected)


def test_parts_left_out_take_their_defaults() -> None:
    """A stored policy may name only its kind."""
    assert backoff_from_json({"kind": "exponential"}) == DEFAULT_BACKOFF


def test_custom_function_cannot_be_stored() -> None:
    """A function has no JSON form, and the error says where it belongs."""
    with pytest.raises(BackoffInvalid, match="set it on the kind"):
        Custom(lambda _: 1).to_json()


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (None, "object with a kind"),
        ([], "object with a kind"),
        ({}, "kind must be"),
        ({"kind": "custom"}, "kind must be"),
        ({"kind": ["exponential"]}, "kind must be"),
        ({"kind": "linear"}, "step is missing"),
        ({"kind": "constant"}, "delay is missing"),
        ({"kind": "constant", "delay": "30"}, "delay is '30'"),
        ({"kind": "constant", "delay": True}, "delay is True"),
        ({"kind": "constant", "delay": -1}, "delay is -1"),
        ({"kind": "constant", "delay": math.nan}, "delay is nan"),
        ({"kind": "constant", "delay": 10**400}, "delay is 1000"),
        ({"kind": "exponential", "bass": 3}, "'bass' is unknown"),
        ({"kind": "exponential", "jitter": None}, "jitter is None"),
    ],
)
def test_bad_stored_policy_is_refused(value: object, named: str) -> None:
    """The error names what is wrong in the JSON."""
    with pytest.raises(BackoffInvalid, match=named):
        backoff_from_json(value)
