"""The page about the commands says what the commands say."""

import re
import runpy
from pathlib import Path

import pytest

from holdfast.model.job import JobState
from holdfast.rules.intervention import ALLOWED, Intervention

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "cli_reference.py"))


def test_the_page_about_the_commands_is_up_to_date() -> None:
    """Whoever changes an option and forgets `make generate` is told so."""
    assert SCRIPT["PAGE"].read_text("utf-8") == SCRIPT["renewed"](), "run `make generate`"


@pytest.mark.parametrize("action", Intervention)
def test_the_table_of_what_can_be_done_is_that_of_the_rules(action: Intervention) -> None:
    """A cell that does not say refused belongs to a state that allows the act."""
    page = SCRIPT["PAGE"].read_text("utf-8")
    head, row = (re.search(rf"^\| ?{word} ?\|(.*)\|$", page, re.MULTILINE) for word in ("", action.value))
    assert head is not None
    assert row is not None
    states = [cell.strip().split(", ") for cell in head[1].split("|")]
    allowed = {
        JobState(state)
        for names, cell in zip(states, row[1].split("|"), strict=True)
        if cell.strip() != "refused"
        for state in names
    }
    assert allowed == ALLOWED[action]


def test_every_option_says_what_it_takes() -> None:
    """The help has no `<str>`, which would say nothing of a number, a duration or an address."""
    page = SCRIPT["PAGE"].read_text("utf-8")
    assert re.findall(r"--[\w-]+ <(?:str|int|path)[^>]*>", page) == []


def test_every_command_and_option_is_explained() -> None:
    """Nothing is left without a word about it."""
    silent = [
        f"{context.command_path} {one.name}"
        for command, context in SCRIPT["every_command"]()
        for one in command.params
        if not one.help and not getattr(one, "hidden", False)
    ]
    silent += [context.command_path for command, context in SCRIPT["every_command"]() if not command.help]
    assert silent == []
