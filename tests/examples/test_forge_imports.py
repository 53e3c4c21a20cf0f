"""An organisation moves in from a GitHub that has pages, limits and gaps."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from examples.forge import git, imports, repositories
from examples.forge.github import AnswerUnusable, GitHub, rest_asked_for
from examples.forge.kinds.imports import request
from examples.forge.repositories import DEFAULT_BRANCH
from examples.forge.scene.github import GONE, NAMES, ORGANISATION, LoopbackGitHub
from holdfast.testing import DrainReport
from tests.examples.bench import Bench, push

DISCOVER, MOVE = "org:github_import_discover", "org:github_import_repo"


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackGitHub]:
    """A GitHub on loopback; no proxy of this machine stands before it."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")
    with LoopbackGitHub(tmp_path / "github") as github:
        yield github


@pytest.fixture
def town(bench: Bench, github: LoopbackGitHub) -> Bench:
    """A forge that imports from that GitHub."""
    return bench.with_github(github.url)


def imported(town: Bench, organisation: str = ORGANISATION) -> DrainReport:
    """Ask for an import and run it to its end."""
    with town.forge.connect() as connection:
        request(town.forge, connection, organisation)
    return town.drain(include_scheduled=True)


def statuses(town: Bench) -> dict[str, str]:
    """What became of each repository."""
    return dict(town.rows("select name, status from forge.import_repositories"))


def test_every_repository_of_every_page_moves_in(town: Bench, github: LoopbackGitHub) -> None:
    """All that are still there are cloned with their history, and the one that is gone is noted."""
    imported(town)
    assert statuses(town) == dict.fromkeys(NAMES, "imported") | {GONE: "gone"}
    for name in NAMES:
        ours = repositories.place(town.settings.root, ORGANISATION, name)
        theirs = github.folder / ORGANISATION / f"{name}.git"
        assert repositories.head(ours) == repositories.head(theirs) is not None
        git.run("fsck", "--strict", folder=ours)
    sizes = "select count(*) from forge.repositories where size_bytes > 0 and head_sha is not null"
    assert town.value(sizes) == len(NAMES)
    assert list((town.settings.root / ".incoming").iterdir()) == []


def test_an_imported_repository_takes_pushes(town: Bench) -> None:
    """It has its hook, like any other."""
    imported(town)
    ours = repositories.place(town.settings.root, ORGANISATION, NAMES[0])
    clone = town.folder / "clone"
    git.run("clone", "--quiet", "--bare", str(ours), str(clone), folder=town.folder)
    assert push(clone, f"{DEFAULT_BRANCH}:refs/heads/topic").returncode == 0
    assert [one.outcome for one in town.drain().of("push:process")] == ["completed"]


def test_a_rate_limit_is_a_rest_and_no_failure(town: Bench, github: LoopbackGitHub) -> None:
    """The listing and one repository are asked for again after the rest that GitHub wants."""
    report = imported(town)
    [discovered, finished] = report.of(DISCOVER)
    assert (discovered.outcome, finished.outcome) == ("snoozed", "completed")
    assert discovered.delay is not None
    assert 0.4 <= discovered.delay <= github.rest + 1
    snoozed = [one for one in report.of(MOVE) if one.outcome == "snoozed"]
    assert [one.delay for one in snoozed] == [github.rest]
    assert github.asked[403] == github.asked[429] == 1
    failures = "select max(failures) from holdfast.job_overview where kind = %s"
    assert town.value(failures, DISCOVER) == 0


def test_a_discovery_goes_on_with_the_page_that_it_had_to_wait_for(
    town: Bench, github: LoopbackGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint spares the pages before: each one is read once."""
    asked = []
    answer = github.answer

    def listening(target: str) -> Any:
        asked.append(target)
        return answer(target)

    monkeypatch.setattr(github, "answer", listening)
    imported(town)
    pages = [target.partition("page=")[2] for target in asked if "/orgs/" in target]
    assert [page.rpartition("=")[2] for page in pages] == ["100", "2", "2", "3"]


def test_an_error_of_github_is_retried(town: Bench, github: LoopbackGitHub) -> None:
    """A 502 may pass: it counts a failure and the job is tried again."""
    report = imported(town)
    [retried] = [one for one in report.of(MOVE) if one.outcome == "retried"]
    assert retried.reason == "HTTPError: HTTP Error 502: Bad Gateway"
    assert github.asked[502] == 1


def test_an_unknown_organisation_is_poison(town: Bench) -> None:
    """It fails at once, and the import says why."""
    [attempt] = imported(town, "nobody").attempts
    assert attempt.outcome == "failed"
    assert town.rows("select status, problem from forge.imports") == [
        ("failed", "organisation 'nobody' is not on GitHub")
    ]


def test_importing_again_has_no_effect(town: Bench, github: LoopbackGitHub) -> None:
    """Both kinds find their row settled, and GitHub is not even asked."""
    imported(town)
    github.asked.clear()
    town.enqueue(DISCOVER, import_id=town.value("select id from forge.imports"))
    for (imported_id,) in town.rows("select id from forge.import_repositories"):
        town.enqueue(MOVE, imported_id=imported_id)
    assert town.drain().counts == {"completed": len(NAMES) + 2}
    assert not github.asked
    assert town.value("select count(*) from forge.repositories") == len(NAMES)


def test_a_name_that_is_taken_is_left_to_its_owner(town: Bench) -> None:
    """An import never replaces a repository that somebody has here."""
    with town.forge.connect() as connection:
        ours = repositories.create(connection, town.settings, ORGANISATION, NAMES[0])
    imported(town)
    assert statuses(town)[NAMES[0]] == "refused"
    assert repositories.head(ours.path) is None


def test_what_an_attempt_left_without_its_commit_is_replaced(town: Bench) -> None:
    """A folder without a row is of an attempt that died between moving in and committing."""
    left = repositories.place(town.settings.root, ORGANISATION, NAMES[0])
    left.mkdir(parents=True)
    (left / "half").write_text("a clone")
    imported(town)
    assert statuses(town)[NAMES[0]] == "imported"
    assert not (left / "half").exists()


@pytest.mark.parametrize("url", ["ext::sh -c true", "file:///etc", "../elsewhere.git"])
def test_a_clone_address_cannot_run_commands_or_read_our_disk(tmp_path: Path, url: str) -> None:
    """What GitHub names as a clone address is only ever fetched over HTTP."""
    with pytest.raises(git.GitFailed):
        imports.clone(url, tmp_path / "clones" / "one")


@contextmanager
def answering(folder: Path, link: str, body: bytes) -> Iterator[GitHub]:
    """A GitHub that gives one fixed answer."""

    class Stubborn(LoopbackGitHub):
        def answer(self, target: str) -> tuple[int, dict[str, str], bytes]:  # noqa: ARG002 - one answer to all
            return 200, {"Link": link}, body

    with Stubborn(folder) as github:
        yield GitHub(github.url)


@pytest.mark.parametrize(
    ("link", "body", "problem"),
    [
        ('<http://elsewhere.invalid/orgs/acme/repos?page=2>; rel="next"', b"[]", "lies on another host"),
        ("", b"{}", "are no list"),
        ("", b"<html>", "is no JSON"),
        ("", b'[{"name": "x"}]', "no name or no clone_url"),
    ],
)
def test_an_answer_that_is_not_githubs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str, body: bytes, problem: str
) -> None:
    """A proxy's page or a link to another host is an error that says so."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with answering(tmp_path, link, body) as github, pytest.raises(AnswerUnusable, match=problem):
        github.page("acme")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"X-RateLimit-Reset": "1030"}, 30.0),
        ({"Retry-After": "7", "X-RateLimit-Reset": "1030"}, 7.0),
        ({"X-RateLimit-Reset": "900"}, 0.5),
        ({"Retry-After": "86400"}, 3600.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 60.0),
        ({}, 60.0),
    ],
)
def test_the_rest_is_what_github_asks_for(headers: dict[str, str], seconds: float) -> None:
    """Seconds or a moment, within bounds, and a minute where it says neither."""
    assert rest_asked_for(headers, now=1000.0) == seconds
