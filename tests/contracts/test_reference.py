"""The pages of docs/reference say what the code says."""

import re
import runpy
from pathlib import Path

import pytest

from holdfast.cli import context
from holdfast.runtime.settings import load

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "reference_tables.py"))


@pytest.mark.parametrize("page", sorted(SCRIPT["TABLES"]))
def test_a_table_of_the_docs_is_up_to_date(page: str) -> None:
    """Whoever changes a setting or a metric and forgets `make generate` is told so."""
    assert (SCRIPT["FOLDER"] / page).read_text("utf-8") == SCRIPT["renewed"](page), "run `make generate`"


def test_the_exit_codes_of_the_docs_are_those_of_the_code() -> None:
    """Every code has its row, and no row its own idea."""
    page = (SCRIPT["FOLDER"] / "exit-codes.md").read_text("utf-8")
    rows = {name: int(code) for code, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)}
    codes = {
        name: value for name, value in vars(context).items() if name.isupper() and isinstance(value, int)
    }
    assert rows == codes


def test_the_example_file_of_the_docs_is_read(tmp_path: Path) -> None:
    """What a user copies from the page works."""
    page = (SCRIPT["FOLDER"] / "settings.md").read_text("utf-8")
    example = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert example is not None
    (tmp_path / "holdfast.toml").write_text(example[1])
    found = load({}, {}, folder=tmp_path).settings
    assert (found.slots, found.grace, found.queues) == (20, 45.0, ("mail", "default"))
