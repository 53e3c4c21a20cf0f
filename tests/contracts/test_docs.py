"""The docs say what the program does: links, programs, names, commands."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import holdfast
import holdfast.engine
import holdfast.errors
import holdfast.testing
from holdfast.cli.main import app
from holdfast.errors import HoldfastError
from holdfast.runtime.settings import RULES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([\w-]+))?\)")
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
COMMAND_LINE = re.compile(r"^(?:\$ )?(holdfast [^\n]*)$", re.MULTILINE)
INLINE_COMMAND = re.compile(r"`(holdfast [a-z][^`]*)`")
VARIABLE = re.compile(r"HOLDFAST_([A-Z_]+)\b")


def name(page: Path) -> str:
    """A page as failures name it."""
    return page.relative_to(ROOT).as_posix()


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    """A link names a file that is there and a heading that is in it."""
    for target, anchor in LINK.findall(page.read_text()):
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), f"{target}#{anchor}"


def test_every_page_is_found_from_the_index() -> None:
    """Nothing is written that nobody can reach."""
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / target).resolve() for target, _ in LINK.findall(index.read_text())}
    missing = [name(page) for page in PAGES[1:] if page != index and page.resolve() not in linked]
    assert missing == []


def test_the_readme_has_programs_that_are_run() -> None:
    """Its first program is examples/quickstart.py, its second a part of examples/approval.py."""
    quickstart, workflow = PYTHON.findall((ROOT / "README.md").read_text())
    assert quickstart == (ROOT / "examples" / "quickstart.py").read_text()
    assert workflow in (ROOT / "examples" / "approval.py").read_text()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_programs_are_python_and_use_names_that_exist(page: Path) -> None:
    """Each block parses, and what it takes from holdfast is public there."""
    public = set(holdfast.__all__) | {"engine", "testing", "errors"}
    for program in PYTHON.findall(page.read_text()):
        for node in ast.walk(ast.parse(program)):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "holdfast"
            ):
                assert node.attr in public
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast"):
                allowed = {"holdfast": public, "holdfast.testing": set(holdfast.testing.__all__)}
                allowed["holdfast.engine"] = set(holdfast.engine.__all__)
                allowed["holdfast.errors"] = set(vars(holdfast.errors))
                assert {alias.name for alias in node.names} <= allowed[node.module or ""]


def commands(page: Path) -> Iterator[str]:
    """Every command line of holdfast that a page shows."""
    text = page.read_text()
    for block in FENCED.findall(text):
        yield from COMMAND_LINE.findall(block)
    yield from INLINE_COMMAND.findall(FENCED.sub("", text))


def options(command: Any) -> set[str]:
    """The options of a command with both of their spellings."""
    return {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)} | {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_and_their_options_exist(page: Path) -> None:
    """What a page tells somebody to type is understood by the command line."""
    root: Any = typer.main.get_command(app)
    for line in commands(page):
        words = shlex.split(line, comments=True)[1:]
        command, known = root, options(root)
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
            known |= options(command)
        assert not hasattr(command, "commands") or command is not root or words[0].startswith("-"), line
        # What follows a bare -- belongs to a program that is run.
        own = words[: words.index("--")] if "--" in words else words
        flags = {word.partition("=")[0] for word in own if word.startswith("-") and word != "-"}
        assert flags <= known, f"{line}: {flags - known}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_variables_are_settings(page: Path) -> None:
    """A variable that a page names is one that is read; the page of bad input shows one that is not."""
    named = {variable.lower() for variable in VARIABLE.findall(page.read_text())}
    assert named <= set(RULES) | {"config"} | ({"slot"} if page.name == "bad-input.md" else set())


def test_the_tree_of_errors_is_drawn_whole() -> None:
    """The docstring of holdfast.errors has every error, once."""
    drawn = re.findall(
        r"\b([A-Z]\w+)\b", " ".join(re.findall(r"── (.*?)(?:  |\n)", holdfast.errors.__doc__ or ""))
    )
    errors = [
        name
        for name, one in vars(holdfast.errors).items()
        if isinstance(one, type) and issubclass(one, HoldfastError) and one is not HoldfastError
    ]
    assert sorted(drawn) == sorted(errors)
