"""The demo's check: it says yes to what happened, and no to anything lost, doubled or made up."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from examples.forge import git, repositories
from examples.forge.scene.check import Check
from examples.forge.scene.clients import Crowd, Ledger
from examples.forge.scene.fleet import Death, HeldJob
from holdfast.runtime.embedded import EmbeddedServer
from tests.examples.bench import Bench, opened

# The claims, as the demo prints them.
EVENTS = "every pushed ref is one event, and no event was made up"
PROCESSED = "every event is marked as processed"
EFFECTS = "every event had its effect exactly once"
JOBS = "every event has exactly one job, and it is completed"
COUNTERS = "every repository counts the pushes that it got"
DISK = "refs, default branch and size are what git has on disk"
FAILURES = "no job failed but those that had to"
RESCUE = "every job of the killed worker was run again by another"


@dataclass(frozen=True, slots=True)
class Played:
    """A forge in which everything that was pushed is processed."""

    bench: Bench
    ledger: Ledger

    @contextmanager
    def check(self, *spoilers: str) -> Iterator[Check]:
        """Open the check after some statements that spoil the record; all is undone afterwards."""
        with self.bench.forge.connect() as connection:
            for spoiler in spoilers:
                connection.execute(spoiler.encode())
            yield Check(connection, self.bench.settings.root, self.ledger)
            connection.rollback()


@pytest.fixture(scope="module")
def played(server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Two clients have pushed to two repositories, and every job is done."""
    with opened(server.dsn, tmp_path_factory.mktemp("check")) as bench:
        made = [bench.repository(name) for name in ("one", "two")]
        crowd = Crowd(made, bench.folder / "clients", clients=2)
        crowd.settle_in()
        for client in crowd.clients:
            client.work(7, lambda: True)
        bench.drain()
        yield Played(bench, crowd.ledger)


def against(check: Check) -> dict[str, list[str]]:
    """The claims that something speaks against."""
    return {finding.claim: finding.against for finding in check.findings() if finding.against}


def test_the_check_says_yes_to_what_really_happened(played: Played) -> None:
    """Nothing speaks against any claim, and there was something to check."""
    with played.check() as check:
        assert against(check) == {}
    assert len(played.ledger.refs()) > 10
    changes = dict(played.bench.rows("select change, count(*) from forge.activities group by change"))
    assert changes.keys() == {"created", "updated", "forced", "deleted"}


TWICE = (
    "insert into forge.activities (event_id, repository_id, pusher, ref, change, commits, job_id, attempt) "
    "select event_id, repository_id, pusher, ref, change, commits, job_id, attempt from forge.activities "
    "order by id limit 1"
)
LOST = "delete from forge.push_events where id = (select min(id) from forge.push_events)"
MADE_UP = (
    "insert into forge.push_events (push_id, repository_id, pusher, ref, before_sha, after_sha, pushed_at) "
    "select gen_random_uuid(), repository_id, pusher, ref, before_sha, after_sha, pushed_at "
    "from forge.push_events order by id limit 1"
)
UNMARKED = (
    "update forge.push_events set processed_at = null where id = (select min(id) from forge.push_events)"
)
FAILED = (
    "update holdfast.finished_jobs set outcome = 'failed', reason = 'bad luck' "
    "where job_id = (select min(id) from holdfast.jobs where kind = 'push:process')"
)
JOB_TWICE = (
    "select holdfast.enqueue('push:process', args) from holdfast.jobs where kind = 'push:process' limit 1"
)


@pytest.mark.parametrize(
    ("spoiler", "claims"),
    [
        (TWICE, [EFFECTS]),
        ("delete from forge.activities", [EFFECTS]),
        (LOST, [EVENTS, EFFECTS]),
        (MADE_UP, [EVENTS, PROCESSED]),
        (UNMARKED, [PROCESSED]),
        (FAILED, [JOBS, FAILURES]),
        (JOB_TWICE, [JOBS]),
        ("update forge.repositories set push_count = push_count + 1", [COUNTERS]),
        ("update forge.repositories set head_sha = null", [DISK]),
        ("update forge.repositories set size_bytes = 1", [DISK]),
    ],
)
def test_the_check_says_no_where_the_record_is_spoiled(
    played: Played, spoiler: str, claims: list[str]
) -> None:
    """Whatever is lost, doubled or made up in the database, the claim that it breaks is named."""
    with played.check(spoiler) as check:
        assert set(claims) <= against(check).keys()


def test_the_check_names_a_push_that_nobody_recorded(played: Played) -> None:
    """A ref that a client moved and the database does not know of is lost."""
    ledger = Ledger()
    for refs in played.ledger.accepted:
        ledger.accept(refs)
    unheard = replace(played.ledger.refs()[0], ref="refs/heads/unheard")
    ledger.accept((unheard,))
    with played.check() as check:
        found = against(replace(check, ledger=ledger))
    assert found == {EVENTS: [f"lost: {unheard}"]}


def test_the_check_asks_git_itself(played: Played) -> None:
    """A ref that moved behind the database's back is seen on disk."""
    path = repositories.place(played.bench.settings.root, "makers", "one")
    ref = path / repositories.DEFAULT_BRANCH
    tip = ref.read_text()
    ref.write_text(git.run("rev-parse", f"{repositories.DEFAULT_BRANCH}~1", folder=path))
    try:
        with played.check() as check:
            found = against(check)
    finally:
        ref.write_text(tip)
    [problems] = found.values()
    assert any("is not where its newest event left it" in problem for problem in problems)
    assert any("the default branch is noted at" in problem for problem in problems)


def test_the_check_says_no_to_a_refused_push_and_a_worker_that_crashed(played: Played) -> None:
    """Clients' and operators' grievances count as well."""
    ledger = Ledger()
    for refs in played.ledger.accepted:
        ledger.accept(refs)
    ledger.refuse("no space left")
    with played.check() as check:
        found = against(replace(check, ledger=ledger, exit_codes={"worker-1": 1, "worker-2": 0}))
    assert found == {
        "no push was refused": ["no space left"],
        "every other worker stopped in good order": ["worker-1 ended with 1"],
    }


def test_the_check_says_no_where_a_killed_workers_jobs_did_not_run_again(played: Played) -> None:
    """A rescue that never came, and a kill that hit nobody at work, are both named."""
    [job_id] = played.bench.rows("select min(id) from holdfast.jobs where kind = 'push:process'")[0]
    death = Death("worker-9", 1, datetime.now(UTC), [HeldJob(job_id, 1, "push:process", "running")], 5.0)
    with played.check() as check:
        assert list(against(replace(check, death=death))) == [RESCUE]
        idle = against(replace(check, death=replace(death, held=[])))
    assert idle == {RESCUE: ["worker-9 held nothing when it was killed"]}


def test_a_job_that_had_to_fail_and_did_not_is_named(played: Played) -> None:
    """The demo's doomed jobs have to fail: a forge that completes them is wrong."""
    with played.check() as check:
        found = against(replace(check, doomed=frozenset({1})))
    assert found == {FAILURES: ["job 1 did not fail"]}
