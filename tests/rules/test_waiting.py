"""Why a live job waits: one sentence for every obstacle, the nearest one first."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.model.job import JobState
from holdfast.model.standing import Standing
from holdfast.rules.waiting import MOST_COUNTED, why_waiting

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ABOUT_TO_RUN = Standing(
    job_id=42,
    now=NOW,
    state=JobState.AVAILABLE,
    queue="mail",
    kind="send",
    run_at=NOW,
    failures=0,
    concurrency_key=None,
    worker_id=None,
    worker=None,
    lease_expires_at=None,
    cancel_requested_at=None,
    paused=False,
    max_running=None,
    key_limit=1,
    running=0,
    key_running=0,
    workers=2,
    knowing=2,
    slots=10,
    busy=3,
    ahead=0,
    leads=True,
)
HELD: dict[str, Any] = {"worker_id": 7, "worker": "w7", "lease_expires_at": NOW + timedelta(seconds=20)}
LATER = NOW + timedelta(minutes=5)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, "it is about to be claimed"),
        ({"ahead": 1}, "1 available job goes first"),
        ({"ahead": 3, "busy": 10}, "all slots (10) of 2 workers are busy, and 3 available jobs go first"),
        ({"ahead": MOST_COUNTED}, "1000 or more available jobs go first"),
        ({"paused": True}, "queue 'mail' is paused: `holdfast queues resume mail` lets it go on"),
        (
            {"max_running": 2, "running": 2},
            "queue 'mail' is at its limit, 2 of at most 2 running: `holdfast queues limit mail N` raises it",
        ),
        (
            {"concurrency_key": "k", "key_running": 1},
            "1 of at most 1 jobs with concurrency key 'k' are running",
        ),
        (
            {"workers": 0, "knowing": 0},
            "no online worker works on queue 'mail': start one with --queues mail",
        ),
        (
            {"workers": 0, "knowing": 0, "elsewhere": ["post", "spam"]},
            "no online worker works on queue 'mail': start one with --queues mail, "
            "or enqueue it in a queue whose workers know 'send': 'post', 'spam'",
        ),
        (
            {"knowing": 0},
            "of 2 workers online in queue 'mail' none knows kind 'send': deploy its handler",
        ),
        ({"state": JobState.SCHEDULED, "run_at": LATER}, "it is due at 2026-03-01 12:05:00 UTC"),
        (
            {"state": JobState.SCHEDULED, "run_at": LATER, "failures": 2},
            "it is due again after 2 failures at 2026-03-01 12:05:00 UTC",
        ),
        (
            {"state": JobState.SCHEDULED},
            "it has been due since 2026-03-01 12:00:00 UTC: the leader makes it available in a moment",
        ),
        (
            {"state": JobState.SCHEDULED, "leads": False},
            "it was due at 2026-03-01 12:00:00 UTC, but nobody leads: "
            "start a worker, which makes it available",
        ),
        ({"state": JobState.WAITING, "suspended_for": "child 7", "children": 1}, "it waits for child 7"),
        (
            {"state": JobState.WAITING, "suspended_for": "signal 'all is well'", "signals": ["all is well"]},
            "it waits for signal 'all is well': `holdfast runs signal 42 'all is well'` sends the signal",
        ),
        (
            {
                "state": JobState.WAITING,
                "suspended_for": "signal 'go'; 10 children from 7 on",
                "signals": ["go"],
                "children": 10,
                "children_left": 3,
                "wake_at": LATER,
            },
            "it waits for signal 'go'; 10 children from 7 on, 3 of 10 children are left, "
            "until 2026-03-01 12:05:00 UTC at the latest: `holdfast runs signal 42 go` sends the signal",
        ),
        (
            {"state": JobState.WAITING, "suspended_for": "the end of a sleep of 300 s", "wake_at": LATER},
            "it waits for the end of a sleep of 300 s, until 2026-03-01 12:05:00 UTC",
        ),
        (
            {"state": JobState.WAITING, "suspended_for": "a sleep", "wake_at": NOW, "leads": False},
            "it was due at 2026-03-01 12:00:00 UTC, but nobody leads: "
            "start a worker, which makes it available",
        ),
        (
            {"state": JobState.WAITING, "run_paused": True, "pause_reason": "paused by ada: audit"},
            "it is held back (paused by ada: audit): `holdfast runs resume 42` lets it go on",
        ),
        (
            {"state": JobState.WAITING, "run_paused": True, "suspended_for": "NonDeterministicRun: mend it"},
            "NonDeterministicRun: mend it: `holdfast runs resume 42`",
        ),
        (
            {"state": JobState.WAITING, "suspended_for": "the next try of step 'undo'", "stopping": True},
            "its cancel was requested and it makes up for its steps: "
            "it waits for the next try of step 'undo'",
        ),
        (
            {"kind": "send@2", "knowing": 0, "known_versions": ["send", "send@3"]},
            "of 2 workers online in queue 'mail' none knows 'send@2', only send, send@3: "
            "deploy that version too, or name it in also= of a newer one",
        ),
        (
            HELD | {"state": JobState.RUNNING, "run_paused": True, "pause_reason": "paused by ada"},
            "it parks at its next step (paused by ada)",
        ),
        (
            HELD | {"state": JobState.CLAIMED},
            "worker 7 (w7) has claimed it and begins it as soon as a slot is free",
        ),
        (
            HELD | {"state": JobState.RUNNING, "cancel_requested_at": NOW},
            "its cancel was requested at 2026-03-01 12:00:00 UTC: worker 7 (w7) is to stop it",
        ),
        (
            HELD | {"state": JobState.RUNNING, "lease_expires_at": NOW},
            "worker 7 (w7) has not renewed its lease since 2026-03-01 12:00:00 UTC: the leader rescues it",
        ),
    ],
)
def test_each_obstacle_has_its_sentence(change: dict[str, Any], sentence: str) -> None:
    """The sentence names the obstacle and, where somebody can do something, what."""
    assert why_waiting(replace(ABOUT_TO_RUN, **change)) == sentence


def test_a_job_that_runs_waits_for_nothing() -> None:
    """There is nothing to explain."""
    assert why_waiting(replace(ABOUT_TO_RUN, **HELD, state=JobState.RUNNING)) is None


def test_a_switch_is_told_before_a_missing_worker() -> None:
    """Of several obstacles the one is named that would hold the job up even if the others were gone."""
    sentence = why_waiting(replace(ABOUT_TO_RUN, paused=True, workers=0, knowing=0))
    assert sentence is not None
    assert "is paused" in sentence
