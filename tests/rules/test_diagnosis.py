"""What the doctor makes of facts, by a table."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.model.health import (
    DeadRows,
    Finding,
    HorizonHolder,
    LeaderHealth,
    Level,
    LockWait,
    LostWorker,
    QueueHealth,
    RouteHealth,
    ServerFacts,
)
from holdfast.rules import diagnosis

HEALTHY = ServerFacts(18, "18.1", 0.0, False, [], 5, 100)
ROUTE = RouteHealth("builds", "holdfast.command", ["x64", "big disk"], None, False, None, 1, 0, 40.0)
QUEUE = QueueHealth("mail", False, None, 2, [], 3.0)


def worst(findings: list[Finding]) -> Level:
    """The most serious level among findings."""
    return max((one.level for one in findings), key=list(Level).index)


@pytest.mark.parametrize(
    ("facts", "level", "check"),
    [
        (HEALTHY, Level.OK, None),
        (replace(HEALTHY, major=14), Level.BAD, "version"),
        (replace(HEALTHY, major=15), Level.OK, None),
        (replace(HEALTHY, major=19), Level.WARN, "version"),
        (replace(HEALTHY, is_replica=True), Level.BAD, "role"),
        (replace(HEALTHY, unsafe=["fsync", "full_page_writes"]), Level.WARN, "durability"),
        (replace(HEALTHY, unsafe=["autovacuum"]), Level.BAD, "durability"),
        (replace(HEALTHY, connections=91), Level.WARN, "connections"),
    ],
)
def test_a_server_is_judged(facts: ServerFacts, level: Level, check: str | None) -> None:
    """Each fault of a server has its level, and only the one at fault is named."""
    findings = diagnosis.of_server(facts)
    assert worst(findings) is level
    assert [one.check for one in findings if one.level is not Level.OK] == ([] if check is None else [check])


@pytest.mark.parametrize(
    ("skew", "uncertainty", "level"),
    [(0.5, 0.0, Level.OK), (-2.5, 0.0, Level.WARN), (2.5, 1.0, Level.OK), (90.0, 0.1, Level.WARN)],
)
def test_a_clock_is_judged_by_what_is_certain(skew: float, uncertainty: float, level: Level) -> None:
    """A slow answer is no proof of a wrong clock."""
    assert diagnosis.of_clock(skew, uncertainty).level is level


@pytest.mark.parametrize(
    ("holder", "level", "remedy"),
    [
        (HorizonHolder("transaction", "77", "psql, idle in transaction", 10.0), Level.OK, None),
        (HorizonHolder("transaction", "77", "psql", 400.0), Level.WARN, "select pg_terminate_backend(77)"),
        (HorizonHolder("transaction", "77", "psql", 4000.0), Level.BAD, "select pg_terminate_backend(77)"),
        (HorizonHolder("prepared transaction", "g1", "app", 4000.0), Level.BAD, "rollback prepared 'g1'"),
        (
            HorizonHolder("replication slot", "s1", "logical", None),
            Level.WARN,
            "select pg_drop_replication_slot('s1')",
        ),
        (HorizonHolder("transaction", "77", "hidden", None), Level.OK, None),
    ],
)
def test_who_holds_the_horizon_is_named_with_the_way_to_end_it(
    holder: HorizonHolder, level: Level, remedy: str | None
) -> None:
    """Old ones are warnings, those of an hour are bad, and each has its own remedy."""
    (finding,) = diagnosis.of_horizon([holder])
    assert finding.level is level
    assert remedy is None or remedy in (finding.remedy or "")


@pytest.mark.parametrize(
    ("rows", "level"),
    [
        (None, Level.OK),
        (DeadRows(10, 9_000, None), Level.OK),
        (DeadRows(50_000, 20_000, 5.0), Level.OK),
        (DeadRows(10, 20_000, None), Level.WARN),
    ],
)
def test_dead_rows_matter_when_they_are_many_and_most(rows: DeadRows | None, level: Level) -> None:
    """A small table may be all dead, a large one may have its share."""
    assert diagnosis.of_dead_rows(rows).level is level


@pytest.mark.parametrize(
    ("queue", "level"),
    [
        (QUEUE, Level.OK),
        (replace(QUEUE, paused=True, workers=0), Level.WARN),
        (replace(QUEUE, max_running=0), Level.WARN),
        (replace(QUEUE, max_running=1), Level.OK),
        (replace(QUEUE, workers=0, unknown=["a"]), Level.BAD),
        (replace(QUEUE, unknown=["a"]), Level.BAD),
    ],
)
def test_a_queue_is_judged(queue: QueueHealth, level: Level) -> None:
    """A queue that an operator has stopped is a warning, one that nobody serves is bad."""
    (finding,) = diagnosis.of_queues([queue])
    assert finding.level is level


@pytest.mark.parametrize(
    ("change", "level"),
    [
        ({}, Level.OK),
        ({"paused": True, "online": 0}, Level.WARN),
        ({"max_running": 0}, Level.WARN),
        ({"online": 0}, Level.BAD),
        ({"online": 0, "oldest": 3.0}, Level.WARN),
        ({"online": 0, "draining": 2}, Level.BAD),
    ],
)
def test_what_jobs_ask_of_runners_is_judged(change: dict[str, Any], level: Level) -> None:
    """Nobody who fits is bad once it lasts longer than a fleet needs to start one."""
    (finding,) = diagnosis.of_routes([replace(ROUTE, **change)])
    assert (finding.check, finding.level) == ("runners", level)


def test_a_runner_that_is_missing_is_described() -> None:
    """With the command that starts it; or the ones that drain are named, which could go on."""
    missing = replace(ROUTE, online=0, runner="anna")
    [finding, draining] = diagnosis.of_routes([missing, replace(missing, runner=None, draining=2)])
    assert finding.what == (
        "queue builds has jobs for runners (kind holdfast.command; labels big disk, x64; runner anna; "
        "for 40 s) and no runner that fits is online"
    )
    assert finding.remedy == (
        "start one: holdfast runner --queues builds --label 'big disk' --label x64 --name anna"
    )
    assert draining.what.endswith("and no runner that fits is online, but 2 that drain")
    assert draining.remedy == "holdfast workers resume ID"


def test_a_paused_queue_is_told_once_for_all_shapes_of_jobs() -> None:
    """Its kinds and labels do not matter for that."""
    paused = replace(ROUTE, paused=True)
    [finding] = diagnosis.of_routes([paused, replace(paused, kind="train")])
    assert finding.remedy == "holdfast queues resume builds"


@pytest.mark.parametrize("change", [{"workers": 0}, {"unknown": ["holdfast:deliver"]}])
def test_deliveries_want_a_service_and_no_application(change: dict[str, Any]) -> None:
    """A worker with an application cannot carry them."""
    (finding,) = diagnosis.of_queues([replace(QUEUE, name="holdfast:deliveries", **change)])
    assert (finding.level, finding.remedy) == (Level.BAD, "run `holdfast serve`")


@pytest.mark.parametrize(
    ("leader", "level"),
    [
        (LeaderHealth(True, 3, None, None), Level.OK),
        (LeaderHealth(True, 3, 2.0, 2.0), Level.OK),
        (LeaderHealth(True, 3, 99.0, None), Level.WARN),
        (LeaderHealth(True, 3, None, 99.0), Level.WARN),
        (LeaderHealth(True, 3, None, None, 99.0), Level.WARN),
        (LeaderHealth(False, 3, 99.0, 99.0), Level.BAD),
        (LeaderHealth(True, 3, None, None, None, 3600.0), Level.BAD),
    ],
)
def test_a_leader_is_judged_by_what_is_late(leader: LeaderHealth, level: Level) -> None:
    """Nobody leading is bad; somebody who does not keep up is a warning."""
    assert worst(diagnosis.of_leader(leader)) is level


def test_a_blocked_session_comes_with_the_way_to_free_it() -> None:
    """Every blocker is named and can be ended."""
    (finding,) = diagnosis.of_lock_waits([LockWait(5, "", [6, 7], 12.0)])
    assert finding.what == "session 5 (unnamed) has waited 12 s for 6, 7"
    assert finding.remedy == "select pg_terminate_backend(6); select pg_terminate_backend(7)"


def test_every_finding_that_is_not_ok_has_a_remedy() -> None:
    """A doctor who only complains is of no use."""
    sick = replace(HEALTHY, major=9, is_replica=True, unsafe=["fsync"], connections=100)
    findings = [
        *diagnosis.of_server(sick),
        diagnosis.of_clock(9.0, 0.0),
        *diagnosis.of_lock_waits([LockWait(5, "", [], 12.0)]),
        *diagnosis.of_horizon([HorizonHolder("replication slot", "s", "", None)]),
        diagnosis.of_dead_rows(DeadRows(0, 99_999, None)),
        *diagnosis.of_queues([replace(QUEUE, workers=0)]),
        *diagnosis.of_leader(LeaderHealth(False, 0, None, None)),
        diagnosis.of_rests(["job_logs_rest"]),
        diagnosis.of_held([7]),
        diagnosis.of_lost_workers([LostWorker(1, "w", 60.0)]),
    ]
    assert all(one.level is not Level.OK and one.remedy for one in findings)
