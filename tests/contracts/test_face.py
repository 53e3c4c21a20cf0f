"""The public face: whole, in one place, and imported no sooner than it is used."""

import ast
import inspect
import subprocess
import sys
from typing import Any

import pytest

import holdfast

HEAVY = ("asyncpg", "psycopg", "holdfast.store", "holdfast.client", "holdfast.workflow")


def told_to_type_checkers() -> dict[str, str]:
    """The names that type checkers see, with the modules they come from."""
    tree = ast.parse(inspect.getsource(holdfast))
    [seen] = [one for one in tree.body if isinstance(one, ast.If)]
    return {
        name.name: str(one.module)
        for one in seen.body
        if isinstance(one, ast.ImportFrom)
        for name in one.names
    }


def test_type_checkers_and_programs_see_the_same_names() -> None:
    """Each public name is told to both, from the same home."""
    assert set(told_to_type_checkers()) == set(holdfast.__all__)
    homes = {name: module for module, names in holdfast._HOMES.items() for name in names}
    assert told_to_type_checkers() == homes


@pytest.mark.parametrize("name", holdfast.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """It can be had, is had once, and is listed."""
    found: Any = getattr(holdfast, name)
    assert getattr(holdfast, name) is found
    assert name in dir(holdfast)


def test_a_name_that_is_not_there_is_an_error_like_any_other() -> None:
    """The sentence is Python's own."""
    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'Nothing'"):
        _ = holdfast.Nothing


def test_an_import_loads_nothing_that_is_not_used() -> None:
    """A runner, which sees no database, does not pay for what speaks to one."""
    program = f"import sys, holdfast; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_star_and_errors_go_as_before() -> None:
    """`from holdfast import *` has every name; `holdfast.errors` needs no import of its own."""
    program = (
        "import holdfast\nfrom holdfast import *\nnames = set(holdfast.__all__)\n"
        "print(holdfast.errors.HoldfastError is HoldfastError, names <= set(globals()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True True"
