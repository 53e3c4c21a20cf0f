"""What the forge's kinds do with a push, and with it again."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.forge import git, pushes, repositories
from examples.forge.kinds import push as push_kind
from examples.forge.repositories import DEFAULT_BRANCH
from examples.forge.scene.history import Growth, grow
from tests.examples.bench import TOPIC, Bench, push

CHANGES = "select ref, change, commits from forge.activities order by id"


def pushed(bench: Bench, name: str = "project") -> tuple[Path, int]:
    """A clone whose default branch is pushed, and the id of its repository; the job is not run yet."""
    repository = bench.repository(name)
    clone = bench.client(repository)
    assert push(clone, DEFAULT_BRANCH).returncode == 0
    return clone, repository.id


def test_every_change_of_a_ref_is_told_apart(bench: Bench) -> None:
    """Created, updated, forced and deleted, each with the commits that came with it."""
    clone, _ = pushed(bench)
    for growth in (
        Growth(TOPIC, "first topic", 2, parent=DEFAULT_BRANCH),
        Growth(TOPIC, "more topic", 4, parent=TOPIC + "^0"),
        Growth(TOPIC, "other topic", 1, parent=DEFAULT_BRANCH),
    ):
        grow(clone, [growth])
        assert push(clone, f"+{TOPIC}").returncode == 0
    assert push(clone, f":{TOPIC}").returncode == 0
    bench.drain()
    assert bench.rows(CHANGES) == [
        (DEFAULT_BRANCH, "created", 3),
        (TOPIC, "created", 5),
        (TOPIC, "updated", 4),
        (TOPIC, "forced", 1),
        (TOPIC, "deleted", 0),
    ]


def test_the_repository_follows_its_pushes(bench: Bench) -> None:
    """Counter, default branch and size are those on disk; deleting the default branch clears its place."""
    clone, repository_id = pushed(bench)
    path = repositories.place(bench.settings.root, "makers", "project")
    bench.drain()
    row = "select push_count, head_sha, size_bytes from forge.repositories where id = %s"
    assert bench.rows(row, repository_id) == [(1, repositories.head(path), repositories.bytes_on_disk(path))]
    git.run("config", "receive.denyDeleteCurrent", "ignore", folder=path)
    assert push(clone, f":{DEFAULT_BRANCH}").returncode == 0
    bench.drain()
    assert bench.rows(row, repository_id) == [(2, None, repositories.bytes_on_disk(path))]


def test_a_second_job_for_an_event_has_no_effect(bench: Bench) -> None:
    """The event is processed already, so the job completes and changes nothing."""
    pushed(bench)
    event_id = bench.value("select id from forge.push_events")
    bench.enqueue("push:process", event_id=event_id)
    report = bench.drain()
    assert [one.result for one in report.of("push:process")][1] == "processed before"
    assert bench.value("select count(*) from forge.activities") == 1
    assert bench.value("select push_count from forge.repositories") == 1
    assert len(report.of("repo:size_recalc")) == 1


def test_of_two_attempts_at_once_only_one_has_an_effect(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that is overtaken between its look and its transaction finds the event processed."""
    pushed(bench)
    look_at = push_kind.look_at

    def overtaken(event: Any, path: Path) -> Any:
        with bench.forge.connect() as connection:
            assert pushes.mark_processed(connection, event.id)
        return look_at(event, path)

    monkeypatch.setattr(push_kind, "look_at", overtaken)
    report = bench.drain()
    assert [one.result for one in report.attempts] == ["processed before"]
    assert bench.value("select count(*) from forge.activities") == 0


@pytest.mark.parametrize(
    ("kind", "args", "reason"),
    [
        ("push:process", {"event_id": "seven"}, "Expected `int`"),
        ("push:process", {}, "missing required field"),
        ("push:process", {"event_id": 0}, "push event 0 has vanished"),
        ("repo:size_recalc", {"repository_id": 0}, "repository 0 has vanished"),
        ("org:github_import_discover", {"import_id": 0}, "import 0 has vanished"),
        ("org:github_import_repo", {"imported_id": 0}, "repository 0 of an import has vanished"),
    ],
)
def test_what_can_never_succeed_fails_at_once(
    bench: Bench, kind: str, args: dict[str, Any], reason: str
) -> None:
    """A bad payload and a vanished row are poison: one attempt, no retry."""
    bench.enqueue(kind, **args)
    [attempt] = bench.drain(include_scheduled=True).attempts
    assert attempt.outcome == "failed"
    assert attempt.reason is not None
    assert attempt.reason.startswith("poison: ")
    assert reason in attempt.reason


def test_what_may_pass_is_tried_again(bench: Bench) -> None:
    """A repository that git cannot read now is not given up."""
    pushed(bench)
    path = repositories.place(bench.settings.root, "makers", "project")
    away = path.rename(path.with_name("away.git"))
    assert [one.outcome for one in bench.drain().attempts] == ["retried"]
    away.rename(path)
    report = bench.drain(include_scheduled=True)
    assert [one.outcome for one in report.of("push:process")] == ["completed"]
    assert bench.value("select count(*) from forge.activities") == 1


def test_each_ranking_is_added_and_the_busiest_comes_first(bench: Bench) -> None:
    """Two computations are two rankings."""
    pushed(bench, "quiet")
    clone, _ = pushed(bench, "busy")
    push(clone, f"{DEFAULT_BRANCH}:{TOPIC}")
    for _ in range(2):
        bench.enqueue("trending:compute")
    report = bench.drain()
    assert [one.result for one in report.of("trending:compute")] == ["makers/busy"] * 2
    rankings = bench.rows("select ranking from forge.trending_snapshots")
    expected = [{"repository": "makers/busy", "pushes": 2}, {"repository": "makers/quiet", "pushes": 1}]
    assert rankings == [(expected,)] * 2


def test_a_purge_spares_what_is_young_or_unprocessed_and_may_run_again(bench: Bench) -> None:
    """Old processed events go with their activities; an old event that waits for its job stays."""
    clone, _ = pushed(bench)
    bench.drain()
    push(clone, f"{DEFAULT_BRANCH}:refs/heads/young")
    bench.drain()
    push(clone, f"{DEFAULT_BRANCH}:refs/heads/waiting")
    old = "update forge.push_events set pushed_at = pushed_at - %s, processed_at = processed_at - %s"
    bench.rows(f"{old} where ref <> 'refs/heads/young'", timedelta(days=30), timedelta(days=30))
    bench.rows(
        "update forge.activities set made_at = made_at - %s where ref = %s",
        timedelta(days=30),
        DEFAULT_BRANCH,
    )
    purged = []
    for _ in range(2):
        bench.enqueue("jobs:purge_completed")
        [attempt] = bench.drain(queues=["chores"]).attempts
        purged.append(attempt.result)
    none = {"activities": 0, "push events": 0, "rankings": 0}
    assert purged == [none | {"activities": 1, "push events": 1}, none]
    assert bench.rows("select ref from forge.push_events order by id") == [
        ("refs/heads/young",),
        ("refs/heads/waiting",),
    ]


def test_the_schedules_are_those_of_the_settings(bench: Bench) -> None:
    """Trending and the sweep come back by themselves, the purge by night."""
    schedules = bench.forge.app.schedules
    assert {name: one.kind for name, one in schedules.items()} == {
        "trending": "trending:compute",
        "sweep the spools": "push:sweep",
        "purge by night": "jobs:purge_completed",
    }
    assert schedules["trending"].every == timedelta(seconds=bench.settings.trending_every)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "-x", ".hidden", "x.git", "x.spool", "a b", "n" * 101]
)
def test_a_name_that_could_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    """Names come from users and from GitHub, and become folders."""
    with pytest.raises(repositories.NameRefused):
        repositories.place(tmp_path, "makers", name)
