"""The tables of cases name tests that exist."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# Those that others run for engines of their own are shipped.
SHIPPED = TESTS.parent / "src" / "holdfast" / "testing"
DEFINED = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
PAGES = sorted(TESTS.rglob("CASES.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_every_case_names_a_test_that_exists(page: Path) -> None:
    """A case whose test was renamed or taken away is not a case that is tested."""
    files = [*TESTS.rglob("test_*.py"), *SHIPPED.rglob("*.py")]
    defined = {name for path in files for name in DEFINED.findall(path.read_text())}
    named = re.findall(r"`(test_\w+)`", page.read_text())
    assert named
    missing = sorted(set(named) - defined)
    assert not missing, f"{page.parent.name}/CASES.md names tests that do not exist: {', '.join(missing)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_every_case_has_a_test_or_a_reason(page: Path) -> None:
    """No row of a table is left open."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", page.read_text(), re.MULTILINE)
    cases = [(case, where) for case, where in rows if case != "case"]
    assert len(cases) > 30
    open_cases = [case for case, where in cases if not re.search("`test_|not yet: |does not apply: ", where)]
    assert not open_cases, f"without a test: {'; '.join(open_cases)}"
