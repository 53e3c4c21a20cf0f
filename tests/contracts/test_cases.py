"""The table of cases names tests that exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
DEFINED = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)


def test_every_case_names_a_test_that_exists() -> None:
    """A case whose test was renamed or taken away is not a case that is tested."""
    defined = {name for path in TESTS.rglob("test_*.py") for name in DEFINED.findall(path.read_text())}
    named = re.findall(r"`(test_\w+)`", (TESTS / "CASES.md").read_text())
    assert named
    missing = sorted(set(named) - defined)
    assert not missing, f"CASES.md names tests that do not exist: {', '.join(missing)}"


def test_every_case_has_a_test_or_a_reason() -> None:
    """No row of the table is left open."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", (TESTS / "CASES.md").read_text(), re.MULTILINE)
    cases = [(case, where) for case, where in rows if case != "case"]
    assert len(cases) > 30
    open_cases = [case for case, where in cases if "`test_" not in where and "not yet: " not in where]
    assert not open_cases, f"without a test: {'; '.join(open_cases)}"
