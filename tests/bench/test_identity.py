"""A file of results says what was measured, and parts of different things are not joined."""

import subprocess
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from bench import __main__ as command
from bench import environments, identity, page
from bench.catalogue import PEERS, contestant
from bench.cell import Case, Measurement
from bench.identity import METHOD, Code, code_of
from bench.results import DifferentRuns, Results

CASE = Case(scenario="B", name="drain, 1 process, 50 B")
CODE = Code("2222f94aaaaaaaaa")


def part(*, code: Code = CODE, seed: int = 0, **differs: object) -> Results:
    """A part of a run, measured in this way and with those differences."""
    made = Results.begin(jobs=1000, rounds=1, code=code, seed=seed)
    made.measurements = [
        Measurement(case=CASE, contestant="holdfast", round=0, value=1.0, yardstick_ms=(1.0, 1.0))
    ]
    return msgspec.structs.replace(made, **differs)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with one commit of something to measure."""
    for name in ("src/one.py", "bench/run.py", "bench/README.md", "docs/page.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("one", "utf-8")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(home: Path, *arguments: str) -> str:
    """Run git there; answers what it printed."""
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *who, *arguments], cwd=home, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(home: Path) -> str:
    """Commit all there is; answers its name."""
    git(home, "add", "-A")
    git(home, "commit", "-qm", "a change")
    return git(home, "rev-parse", "HEAD")


def test_the_code_is_the_commit_that_last_touched_what_is_measured(clone: Path) -> None:
    """What is published of a run, and pages, are no other code: parts before and after can be joined."""
    first = git(clone, "rev-parse", "HEAD")
    for name in ("docs/page.md", "bench/README.md", "bench/results.json"):
        (clone / name).write_text("figures", "utf-8")
    assert code_of(clone) == Code(first)
    commit(clone)
    assert code_of(clone) == Code(first)
    (clone / "src/one.py").write_text("two", "utf-8")
    assert code_of(clone) == Code(first, is_changed=True)
    second = commit(clone)
    assert code_of(clone) == Code(second)


def test_a_file_that_git_does_not_know_is_a_change_as_well(clone: Path) -> None:
    """It may be imported."""
    (clone / "bench/more.py").write_text("new", "utf-8")
    assert code_of(clone).is_changed


def test_without_git_the_code_is_unknown(tmp_path: Path) -> None:
    """Sources out of an archive can be measured, and the figures say that nobody knows of which code."""
    assert code_of(tmp_path) == Code()
    assert str(Code()) == "unknown"


def test_every_peer_has_a_version() -> None:
    """With what it runs on, where its environment was made."""
    found = identity.versions(PEERS)
    assert list(found) == [peer.label for peer in PEERS]
    assert found["PgQueuer 1.6"].startswith("pgqueuer 1.6.0 on Python ")
    assert found["absurd 0.5"].startswith("absurd-sdk 0.5.1, absurdctl 0.5.1 on Python ")
    assert found["pg-boss 12.35"].startswith("pg-boss 12.35.0 on Node.js ")


def test_an_environment_says_which_python_it_was_made_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one of the peer, which is not always that of the benchmark."""
    monkeypatch.setattr(environments, "ENVIRONMENTS", tmp_path)
    oban = contestant("oban")
    assert identity.version(oban) == "oban 0.7.0 on Python unknown"
    (tmp_path / "oban").mkdir()
    (tmp_path / "oban" / "pyvenv.cfg").write_text("home = somewhere\nversion = 3.12.1\n", "utf-8")
    assert identity.version(oban) == "oban 0.7.0 on Python 3.12.1"


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (part(code=Code("1111111aaaaaaaaa")), "of code 2222f94aaa and another of code 1111111aaa"),
        (part(code=Code(CODE.commit, is_changed=True)), "and another of code 2222f94aaa, changed since"),
        (part(method=METHOD + 1), f"of method {METHOD} .* and another of method {METHOD + 1}"),
        (part(versions={"Oban": "oban 0.8"}), r"Oban is oban 0\.7 in one and oban 0\.8 in another"),
    ],
)
def test_parts_of_different_things_are_not_joined(other: Results, problem: str) -> None:
    """Their ratios would be of two programs, and nobody could say which."""
    with pytest.raises(DifferentRuns, match=problem):
        Results.joined([part(versions={"Oban": "oban 0.7"}), part(), other])


@pytest.mark.parametrize("code", [Code(), Code(CODE.commit, is_changed=True)])
def test_two_parts_of_code_that_nobody_knows_are_not_joined(code: Code) -> None:
    """Both were changed since the same commit, and nobody can say that the changes were the same."""
    assert Results.joined([part(code=code)]).code == code
    with pytest.raises(DifferentRuns, match="cannot be told"):
        Results.joined([part(code=code), part(code=code)])


def test_a_joined_run_keeps_what_its_parts_were(tmp_path: Path) -> None:
    """Also on the way through its file."""
    parts = [part(seed=7, versions={"Oban": "oban 0.7"}), part(seed=8, versions={"Awa": "awa 0.6"})]
    Results.joined(parts).write(tmp_path / "results.json")
    whole = Results.read(tmp_path / "results.json")
    assert (whole.method, whole.code, whole.seeds) == (METHOD, CODE, [7, 8])
    assert whole.versions == {"Oban": "oban 0.7", "Awa": "awa 0.6"}


def test_what_an_older_method_published_is_replaced_and_not_added_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first set of a method stands by itself: the published file of before has no part in it."""
    home, fresh = tmp_path / "bench", tmp_path / "fresh"
    monkeypatch.setattr(command, "HOME", home)
    part(method=1).write(home / "results.json")
    (home / "README.md").write_text("<!-- results: x -->\n<!-- end of results -->\n", "utf-8")
    part().write(fresh / "results.json")
    refused = CliRunner().invoke(command.app, ["report", str(home), str(fresh), "--publish"])
    assert refused.exit_code == 2
    assert Results.read(home / "results.json").method == 1
    assert CliRunner().invoke(command.app, ["report", str(fresh), "--publish"]).exit_code == 0
    assert Results.read(home / "results.json") == part()
    assert f"Method {METHOD}, code of commit 2222f94aaa.\n" in (home / "README.md").read_text("utf-8")


def test_the_page_says_of_which_code_its_figures_are() -> None:
    """A reader can look it up."""
    assert "code of commit 2222f94aaa, changed since" in page.markdown(part(code=Code(CODE.commit, True)))
