"""The workshop keeps its word: locks without addresses, chores with help, a setup that explains itself."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
ADDRESS = re.compile(r"https?:|file:|git\+|--(?:index|extra-index|find-links|trusted-host)|(?:^|\s)-[if]\s")
# Homes of people and of root, as Linux, macOS and Windows write them.
HOME = re.compile(r"(?:/home|/Users)/\w|(?<![\w.])/(?:root)/|\b[A-Z]:\\Users\\")
# The text of a requirement up to the next one; its hashes follow on continued lines.
REQUIREMENT = re.compile(r"^(?P<name>[a-z0-9][\w.-]*)(?P<rest>.*(?:\n[ \t]+.*)*)", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")


def requirements(lock: Path) -> dict[str, str]:
    """The requirements of a lock file, each with the lines that belong to it."""
    return {match["name"]: match["rest"] for match in REQUIREMENT.finditer(lock.read_text())}


def pins(lock: Path) -> set[str]:
    """Every `name==version` of a lock file."""
    return set(re.findall(r"^([a-z0-9][\w.-]*==[^ ;\\]+)", lock.read_text(), re.MULTILINE))


def tracked() -> list[Path]:
    """What git knows, links and what is not there any more as well."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listing.split("\0") if name]


def tracked_files() -> list[Path]:
    """The files git knows, as long as they are still there."""
    return [path for path in tracked() if path.is_file()]


def test_there_is_a_lock_for_users_and_one_for_developers() -> None:
    """Both lock files exist, and what users get is what the tests ran with."""
    assert [lock.name for lock in LOCKS] == ["runtime.txt", "test.txt"]
    runtime, test = LOCKS
    assert pins(runtime), "requirements/runtime.txt pins nothing: run `make lock`"
    assert pins(runtime) <= pins(test)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_locked_requirement_has_an_exact_version_and_a_hash(lock: Path) -> None:
    """Nothing can be installed from a lock file that is not exactly what was locked."""
    loose = [
        name
        for name, rest in requirements(lock).items()
        if not rest.startswith("==") or not HASH.search(rest)
    ]
    assert requirements(lock)
    assert not loose, f"without version or hash in {lock.name}: {', '.join(loose)}; run `make lock`"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_no_lock_file_names_an_address(lock: Path) -> None:
    """A lock file holds on every machine, whatever index or mirror that machine uses."""
    named = [line for line in lock.read_text().splitlines() if ADDRESS.search(line)]
    assert not named, f"{lock.name} names an address: {named}"


def test_every_dependency_of_the_package_is_locked() -> None:
    """A dependency added to pyproject.toml without `make lock` is noticed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for group in project["optional-dependencies"].values() for line in group]
    asked = {
        name.lower().replace("_", "-")
        for line in [*project["dependencies"], *extras]
        if (name := re.split(r"[^\w.-]", line)[0]) != project["name"]
    }
    assert asked <= requirements(ROOT / "requirements" / "test.txt").keys()


def test_make_alone_lists_every_target_with_its_help() -> None:
    """Whoever types `make` learns all the chores."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][\w-]*):(?!=)", makefile, re.MULTILINE))
    # Our own make may be running this test: its flags must not reach the inner one.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    shown = subprocess.run(["make"], cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    listed = set(re.findall(r"^  make ([\w-]+) +\S", shown.stdout, re.MULTILINE))
    assert {"demo", "up", "test", "check", "verify", "soak", "docs", "setup"} <= targets
    assert listed == targets, f"without a ## help line: {sorted(targets - listed)}"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an unpacked archive has no git to ask")
def test_no_file_in_git_names_a_developers_home() -> None:
    """What works only in one person's home does not get in."""
    files = tracked_files()
    named = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if HOME.search(line)
    ]
    assert files
    assert not named, f"a path into somebody's home in {', '.join(named)}"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="an unpacked archive has no git to ask")
def test_no_link_in_git_leads_out_of_it() -> None:
    """An environment that is a link on one machine must not take the place of another's."""
    links = {path: path.readlink() for path in tracked() if path.is_symlink()}
    # By its text: an absolute one leads out wherever else the project is, and some lead to themselves.
    leading_out = [
        f"{path.relative_to(ROOT)} to {link}"
        for path, link in links.items()
        if link.is_absolute() or not Path(os.path.normpath(path.parent / link)).is_relative_to(ROOT)
    ]
    assert not leading_out, f"links out of the project: {', '.join(leading_out)}"


def script(path: Path, body: str) -> None:
    """Write an executable shell script."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine whose python3 is too old: its programs in bin/, a clone of Holdfast in `a clone/`."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "dirname", "rm", "mkdir", "touch"):
        found = shutil.which(name)
        assert found, f"{name} is missing on this machine"
        (programs / name).symlink_to(found)
    script(programs / "python3", '[ "$1" = --version ] && echo "Python 3.9.2"; exit 1')
    (tmp_path / "a clone" / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "environment", tmp_path / "a clone" / ".ci" / "environment")
    return tmp_path


def make_environment(machine: Path) -> subprocess.CompletedProcess[str]:
    """Run .ci/environment with nothing but the machine's own programs."""
    return subprocess.run(
        [machine / "a clone" / ".ci" / "environment"],
        env={"PATH": str(machine / "bin")},
        check=False,
        capture_output=True,
        text=True,
    )


def test_setup_says_what_to_install_when_python_is_too_old(machine: Path) -> None:
    """An old python3 and no newer one beside it is an error that names both versions."""
    done = make_environment(machine)
    assert done.returncode == 1
    assert "needs Python 3.11 or newer; found Python 3.9.2" in done.stderr
    assert not (machine / "a clone" / ".venv").exists()


def test_setup_takes_a_newer_python_beside_an_old_one_and_says_so(machine: Path) -> None:
    """An old python3 does not matter where a newer Python goes by its full name."""
    script(machine / "bin" / "python3.13", '[ "$1" = -c ] || { mkdir -p .venv && touch .venv/made; }')
    done = make_environment(machine)
    assert done.returncode == 0, done.stderr
    assert "using python3.13 instead" in done.stdout
    assert (machine / "a clone" / ".venv" / "made").exists()


def test_setup_names_the_missing_package_when_python_cannot_make_an_environment(machine: Path) -> None:
    """A Python without ensurepip and pip leaves no half-made .venv, but a hint what to install."""
    script(
        machine / "bin" / "python3.12",
        'case "$*" in -c*) ;; "-m venv"*) mkdir -p .venv; [ "$3" = --without-pip ] ;; *) exit 1 ;; esac',
    )
    done = make_environment(machine)
    assert done.returncode == 1
    assert "python3.12 has neither ensurepip nor pip" in done.stderr
    assert not (machine / "a clone" / ".venv").exists()
