"""The command line does what bench/README.md says, and refuses what would come to nothing."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import __main__ as command
from bench import environments, lock, page, run
from bench.catalogue import Contestant, contestant
from bench.cell import Case, Cell, Failure, Measurement, Scale
from bench.identity import METHOD, Code
from bench.results import DifferentRuns, Results

CASE = Case(scenario="B", name="drain, 1 process, 50 B")


class Watched:
    """What a run would have installed and measured."""

    def __init__(self) -> None:
        self.installed: list[str] = []
        self.measured: list[str] = []

    def prepare(self, peer: Contestant) -> None:
        """Stand for the installation of a peer."""
        self.installed.append(peer.name)

    def run(self, cells: Sequence[Cell], *_: object) -> None:
        """Stand for the run."""
        self.measured += [f"{cell.name}: {one.name}" for cell in cells for one in cell.contestants]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Watched:
    """A run on a machine without any peer, which installs and measures nothing, whoever else measures."""
    made = Watched()
    monkeypatch.setattr(lock, "PLACE", tmp_path / "lock")
    monkeypatch.setattr(environments, "is_ready", lambda _: False)
    monkeypatch.setattr(environments, "prepare", made.prepare)
    monkeypatch.setattr(run, "run", made.run)
    return made


def call(*arguments: object) -> tuple[int, str]:
    """Call the command; answers its code and what it said, on one line."""
    done = CliRunner().invoke(command.app, [str(one) for one in arguments], env={"COLUMNS": "500"})
    return done.exit_code, " ".join(done.output.split())


def results(folder: Path, *, jobs: int = 100_000, is_small: bool = False) -> Results:
    """Write the results of a run into a folder."""
    made = Results.begin(jobs=jobs, rounds=1, is_small=is_small, code=Code("2222f94"))
    made.measurements = [
        Measurement(case=CASE, contestant=name, round=0, value=1.0, yardstick_ms=(1.0, 1.0))
        for name in ("holdfast", "pgqueuer")
    ]
    made.write(folder / "results.json")
    return made


def test_only_those_who_take_part_are_installed(watched: Watched, tmp_path: Path) -> None:
    """Whoever asks for one peer does not wait for the others."""
    assert call("run", "--only", "holdfast, pgqueuer", "--cell", "idle", "--out", tmp_path)[0] == 0
    assert watched.installed == ["pgqueuer"]
    assert watched.measured == [
        "idle: holdfast", "idle: pgqueuer", "idle: holdfast", "idle: pgqueuer",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--only", "pgquer"], "nobody is called pgquer: there are absurd, awa, chancy"),
        (["--cell", "idel"], "no cell is left: look at --scenario, --cell and --only"),
        (["--scenario", "X"], "no cell is left"),
        (["--scenario", "G", "--only", "pgqueuer"], "no cell is left"),
    ],
)
def test_what_would_measure_nothing_is_refused(
    watched: Watched, tmp_path: Path, arguments: list[str], problem: str
) -> None:
    """A slip of the pen must not look like a run that found nothing."""
    code, said = call("run", *arguments, "--out", tmp_path)
    assert code == 2
    assert problem in said
    assert watched.installed == []


def test_a_report_draws_beside_a_run_and_not_among_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To add rounds to what is published must not leave fifty pictures in bench/."""
    home, more = tmp_path / "bench", tmp_path / "more"
    monkeypatch.setattr(command, "HOME", home)
    results(home)
    results(more)
    assert call("report", home, more)[0] == 0
    assert [path.name for path in home.iterdir()] == ["results.json"]
    assert {path.suffix for path in more.iterdir()} == {".json", ".svg"}


def test_a_report_of_nothing_says_so(tmp_path: Path) -> None:
    """There is no traceback for a folder that was misspelt."""
    code, said = call("report", tmp_path / "none")
    assert code == 2
    assert "has a run been made there?" in said


def test_parts_that_were_measured_in_different_ways_are_no_run(tmp_path: Path) -> None:
    """A drain of 20,000 jobs is no round of one of 100,000, nor is one on a machine with more processors."""
    whole, part = results(tmp_path / "whole"), results(tmp_path / "part", jobs=20_000)
    code, said = call("report", tmp_path / "whole", tmp_path / "part")
    assert code == 2
    assert "no parts of one run: jobs is 100000 in one and 20000 in another" in said
    part.jobs, part.machine = whole.jobs, whole.machine | {"processors": "999"}
    with pytest.raises(DifferentRuns, match=r"processors is .* and 999"):
        Results.joined([whole, part])
    part.machine = whole.machine | {"system": "a kernel of later"}
    assert Results.joined([whole, part]).rounds == 2


def test_a_small_run_is_not_published(tmp_path: Path) -> None:
    """Its cases are named after a million rows of which it has a fiftieth."""
    results(tmp_path, is_small=True)
    code, said = call("report", tmp_path, "--publish")
    assert code == 2
    assert "not to be published" in said


def test_a_page_without_a_place_is_no_page_to_publish_on(tmp_path: Path) -> None:
    """The figures beside it would no longer be those that it shows."""
    (tmp_path / "README.md").write_text("no marker\n", "utf-8")
    with pytest.raises(ValueError, match="no place for results"):
        page.fill(tmp_path / "README.md", results(tmp_path))


def test_what_failed_is_published_as_well(tmp_path: Path) -> None:
    """Whoever reads the page learns that a peer came to nothing, and why."""
    made = results(tmp_path)
    made.failures = [
        Failure(cell="B drain", contestant="awa", round=n, reason="Awa 0.6, work: broke\na traceback")
        for n in range(2)
    ]
    assert "Without a figure: B drain: Awa 0.6 (2 times): Awa 0.6, work: broke." in page.markdown(made)


@pytest.mark.usefixtures("watched")
def test_a_scale_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small run can be told from a whole one."""
    noted = []

    def note(_: object, scale: Scale, found: Results, *__: object) -> None:
        noted.append((scale.mass, found.is_small))

    monkeypatch.setattr(run, "run", note)
    call("run", "--only", "holdfast", "--small", "--out", tmp_path)
    call("run", "--only", "holdfast", "--out", tmp_path)
    assert noted == [(20_000, True), (1_000_000, False)]


def test_a_python_that_is_not_there_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A slip in BENCH_PYTHON leaves out whoever needs it, and nobody else."""
    monkeypatch.setenv(environments.PYTHON_VARIABLE, str(tmp_path / "python"))
    with pytest.raises(environments.EnvironmentMissing, match=r"needs Python 3\.99"):
        environments._python((3, 99))


def test_peers_run_on_the_python_of_holdfast_wherever_that_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else part of a difference would be the interpreter's; the variable names one for the others."""
    newer = str(shutil.which("true"))
    monkeypatch.setenv(environments.PYTHON_VARIABLE, newer)
    major, minor = sys.version_info[:2]
    assert environments._python((3, 11)) == sys.executable
    assert environments._python((major, minor + 1)) == newer
    assert environments.is_fitting((major, minor), (3, 11))
    assert not environments.is_fitting((major, minor + 1), (3, 11))
    assert environments.is_fitting((major, minor + 2), (major, minor + 1))
    assert not environments.is_fitting((major, minor), (major, minor + 1))


def test_what_libpq_reads_is_kept_from_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a user's own options would hold for those who connect by libpq, and not for the others."""
    monkeypatch.setenv("PGOPTIONS", "-c synchronous_commit=off")
    monkeypatch.setenv("BENCH_KEPT", "yes")
    found = environments.variables(contestant("oban"))
    assert "PGOPTIONS" not in found
    assert found["BENCH_KEPT"] == "yes"


@pytest.mark.usefixtures("watched")
def test_a_seed_is_drawn_and_noted_unless_one_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that each part of a run has an order of its own, which can be repeated."""
    noted = []
    monkeypatch.setattr(run, "run", lambda _, __, found, *___: noted.append((found.method, found.seeds)))
    call("run", "--only", "holdfast", "--seed", 7, "--out", tmp_path)
    for _ in range(3):
        code, said = call("run", "--only", "holdfast", "--out", tmp_path)
        assert (code, f"--seed {noted[-1][1][0]}" in said) == (0, True)
    assert noted[0] == (METHOD, [7])
    assert len({seeds[0] for _, seeds in noted[1:]}) > 1
