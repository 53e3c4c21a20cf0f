"""What an engine may say of an attempt, and what becomes of it where it cannot be kept as it is."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.engine import Cancel, Complete, Fail, Outcome, Release, Retry, Snooze, Suspend
from holdfast.testing import ThrowawayDatabase
from tests.engine.conftest import KIND, OpenStore

WRONG: dict[str, tuple[Any, str]] = {
    "no outcome": ("done", "outcome is 'done': give one of those in holdfast.engine"),
    "none at all": (None, "outcome is None: give one of those"),
    "Fail.reason": (Fail(5), "Fail.reason is 5: give a string"),  # type: ignore[arg-type]
    "Fail.error": (Fail("no", ValueError("x")), "Fail.error is ValueError"),  # type: ignore[arg-type]
    "Cancel.reason": (Cancel(None), "Cancel.reason is None"),  # type: ignore[arg-type]
    "Retry.reason": (Retry(1, b"no"), "Retry.reason is b'no'"),  # type: ignore[arg-type]
    "Snooze.reason": (Snooze(1, 5), "Snooze.reason is 5"),  # type: ignore[arg-type]
    "Release.reason": (Release(5), "Release.reason is 5"),  # type: ignore[arg-type]
    "Suspend.reason": (Suspend(5), "Suspend.reason is 5"),  # type: ignore[arg-type]
    "no signals": (Suspend("a word", None), "signals is None: give a tuple"),  # type: ignore[arg-type]
    "a signal that is none": (Suspend("a word", (5,)), "signals is 5: give a string"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", WRONG)
async def test_what_is_no_outcome_is_refused_and_the_attempt_goes_on(opened: OpenStore, case: str) -> None:
    """The error names what is wrong; the engine still holds the run and can end it."""
    outcome, told = WRONG[case]
    store = await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()
    with pytest.raises(holdfast.OptionInvalid, match=told):
        await store.queue.end(claim, outcome)
    await store.queue.end(claim, Complete())


ODD = {"NUL": ("a\0b", "a\\x00b"), "half a surrogate pair": ("a\ud800b", "a\\ud800b"), "empty": ("", "")}


@pytest.mark.parametrize("make", [Fail, Cancel, Release, Suspend, lambda text: Snooze(9, text)])
@pytest.mark.parametrize("case", ODD)
async def test_an_odd_reason_is_kept_as_far_as_postgresql_can(
    opened: OpenStore, db: ThrowawayDatabase, make: Any, case: str
) -> None:
    """The end is not lost for it."""
    given, kept = ODD[case]
    await _ended(opened, make(given))
    assert await _reason(db) == kept


@pytest.mark.parametrize("make", [Fail, Cancel, Release, Suspend, lambda text: Retry(9, text)])
async def test_an_endless_reason_is_cut_in_its_middle(
    opened: OpenStore, db: ThrowawayDatabase, make: Any
) -> None:
    """Its beginning and its end tell most."""
    await _ended(opened, make("first" + "x" * 10_000_000 + "last"))
    reason = await _reason(db)
    assert len(reason) < 21_000
    assert (reason[:5], reason[-4:]) == ("first", "last")


async def _ended(opened: OpenStore, outcome: Outcome) -> None:
    store = await opened()
    await store.queue.enqueue(KIND, {})
    [claim] = await store.queue.claim()
    await store.queue.end(claim, outcome)


async def _reason(db: ThrowawayDatabase) -> Any:
    return await db.value(
        "select reason from holdfast.attempts union all select reason from holdfast.finished_jobs"
    )
