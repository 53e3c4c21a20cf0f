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
        ({"state": JobState.WAITING}, "its run waits for a signal, a timer or a child"),
        ({"state": JobState.WAITING, "suspended_for": "signal 'go'"}, "its run waits for signal 'go'"),
        (
            {"state": JobState.WAITING, "suspended_for": "audit", "run_paused": True},
            "its run is paused (audit): a resume lets it go on",
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
