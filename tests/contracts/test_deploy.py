"""What deploy/ names is there: nobody builds an image or starts a unit in these tests."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli import main
from holdfast.cli.context import LEFT_OVER, WRONG_USE
from holdfast.runtime.settings import PREFIX, Settings
from holdfast.runtime.values import duration

ROOT = Path(__file__).parents[2]
CONTAINERFILE = (ROOT / "deploy" / "Containerfile").read_text()
UNIT = (ROOT / "deploy" / "holdfast-runner.service").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def instructions(name: str) -> list[str]:
    """What follows each instruction of that name in the Containerfile, as one line."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", CONTAINERFILE, flags=re.MULTILINE))
    return re.findall(rf"^{name} (.+)$", text, re.MULTILINE)


def option(name: str) -> str:
    """The value of an option of the unit, which has it once."""
    [value] = re.findall(rf"^{name}=(.+)$", UNIT, re.MULTILINE)
    return str(value)


def entry_point() -> list[str]:
    """The words with which a container starts."""
    [words] = instructions("ENTRYPOINT")
    return [str(word) for word in json.loads(words)]


def seconds(text: str) -> float:
    """A duration as a setting is given."""
    return float(duration(0).read(text))


def test_the_image_is_made_of_files_that_exist() -> None:
    """Every source of a COPY is in the repository, and all that the package is built from is copied."""
    copies = [line.split() for line in instructions("COPY")]
    sources = {source for *names, _ in copies for source in names}
    assert [source for source in sorted(sources) if not (ROOT / source).exists()] == []
    needed = {
        "requirements/runtime.txt",
        "pyproject.toml",
        PROJECT["project"]["readme"],
        *PROJECT["project"]["license-files"],
        *(path.split("/")[0] for path in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]),
    }
    assert needed <= sources


def test_what_is_installed_is_what_was_copied() -> None:
    """pip is told of places that a COPY has filled, and installs nothing else without a hash."""
    targets = {line.split()[-1].rstrip("/") for line in instructions("COPY")}
    locked, package = (line for line in instructions("RUN") if "pip install" in line)
    assert "--require-hashes" in locked
    assert locked.split()[-1] in targets
    assert "--no-deps" in package
    assert package.split(" && ")[0].split()[-1] in targets


def test_the_image_has_a_python_that_the_project_supports() -> None:
    """Its version is one of those that the project names."""
    [base] = instructions("FROM")
    found = re.search(r"python:(3\.\d+)", base)
    assert found is not None
    assert f"Programming Language :: Python :: {found[1]}" in PROJECT["project"]["classifiers"]


def test_the_container_runs_as_a_user_of_its_own_in_a_folder_that_is_its_own() -> None:
    """The user is made before, is not root, and owns where the runner keeps its token and its work."""
    [user], [folder] = instructions("USER"), instructions("WORKDIR")
    [made] = [line for line in instructions("RUN") if "useradd" in line]
    assert user.isdecimal()
    assert int(user) > 0
    assert f"--uid {user} runner " in made
    assert f"mkdir {folder} && chown runner {folder}" in made
    assert f"HOLDFAST_FOLDER={folder}" in instructions("ENV")[0].split()


def test_every_variable_is_a_setting() -> None:
    """Also those that the comments tell people to set."""
    named = set(re.findall(rf"{PREFIX}(\w+)", CONTAINERFILE + UNIT))
    assert {"SERVER", "TOKEN", "FOLDER", "LOG_FORMAT"} <= named
    assert {name.lower() for name in named} <= set(Settings.__dataclass_fields__)


@pytest.mark.parametrize("words", [entry_point(), shlex.split(option("ExecStart"))], ids=["image", "unit"])
def test_what_is_started_is_a_command_that_exists(words: list[str]) -> None:
    """The program is the project's own, and takes every option."""
    assert Path(words[0]).name in PROJECT["project"]["scripts"]
    done = CliRunner().invoke(main.app, [*words[1:], "--help"])
    assert done.exit_code == 0, done.output


def test_a_stop_has_time_for_the_grace() -> None:
    """Who stops a runner waits longer than the runner waits for its programs."""
    image, unit = entry_point(), shlex.split(option("ExecStart"))
    told = re.search(r"--time (\d+)", CONTAINERFILE)
    assert told is not None
    assert float(told[1]) > seconds(image[image.index("--grace") + 1])
    stop = re.fullmatch(r"(\d+)min", option("TimeoutStopSec"))
    assert stop is not None
    assert 60 * float(stop[1]) > seconds(unit[unit.index("--grace") + 1])


def test_the_unit_knows_the_exit_codes() -> None:
    """What was handed back is no failure, and wrong use is not mended by a restart."""
    assert int(option("SuccessExitStatus")) == LEFT_OVER
    assert int(option("RestartPreventExitStatus")) == WRONG_USE


def test_the_unit_writes_only_where_it_may() -> None:
    """With everything else read-only the folder it works in is the one that systemd makes for it."""
    assert option("WorkingDirectory") == f"/var/lib/{option('StateDirectory')}"
    assert f"--home-dir /var/lib/{option('StateDirectory')} {option('User')}" in UNIT
