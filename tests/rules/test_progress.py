"""How far a handler is: what is a share, and what is none."""

from decimal import Decimal
from typing import Any

import pytest

from holdfast.errors import OptionInvalid
from holdfast.rules.progress import told_progress


@pytest.mark.parametrize(
    ("fraction", "share"),
    [
        (0.5, 0.5),
        (1, 1.0),
        (True, 1.0),
        (-1, 0.0),
        (7, 1.0),
        (Decimal("0.25"), 0.25),
        (10**400, 1.0),
        (-(10**400), 0.0),
    ],
)
def test_any_number_is_a_share(fraction: Any, share: float) -> None:
    """Within its bounds, whatever its type and size."""
    assert told_progress(fraction, None) == (share, None)


def test_no_number_is_still_kept() -> None:
    """A share of nothing is no reason to fail a job."""
    assert told_progress(float("nan"), None) == (0.0, None)


@pytest.mark.parametrize("fraction", ["0.5", b"1", None, [], object])
def test_what_is_no_number_is_named(fraction: Any) -> None:
    """A text that looks like one is none."""
    with pytest.raises(OptionInvalid, match=r"^fraction is .*: give a number from 0 to 1"):
        told_progress(fraction, None)


def test_a_note_is_made_fit_to_be_stored() -> None:
    """A character that PostgreSQL cannot keep is shown as what it is."""
    assert told_progress(0, "half \x00") == (0.0, "half \\x00")
    given: Any = 7
    with pytest.raises(OptionInvalid, match="note is 7: give a string"):
        told_progress(0, given)
