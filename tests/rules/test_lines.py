"""Bytes that come in pieces are cut into the lines they would be in one piece."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.rules.lines import LONGEST_LINE, Line, LineCutter

TEXT = st.text(alphabet="aä\n\r😀 ", max_size=60)


def cut(pieces: list[bytes]) -> list[Line]:
    """The lines of pieces that follow on from byte 0."""
    cutter, offset, lines = LineCutter(), 0, []
    for piece in pieces:
        lines += cutter.cut(offset, piece)
        offset += len(piece)
    return lines + cutter.flush()


@given(TEXT, st.lists(st.integers(0, 240), max_size=8))
def test_lines_do_not_depend_on_how_the_bytes_are_cut(text: str, places: list[int]) -> None:
    """Not even where a cut goes through a character or between the two bytes of a line end."""
    data = text.encode()
    borders = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    pieces = [data[a:b] for a, b in pairwise(borders)]
    assert cut(pieces) == cut([data])


@given(TEXT)
def test_a_line_tells_where_it_begins(text: str) -> None:
    """At its offset in the bytes its text is found again, and no text is lost."""
    data = text.encode()
    lines = cut([data])
    assert all(data[line.byte_offset :].startswith(line.text.encode()) for line in lines)
    assert len(lines) == data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


def test_a_line_that_never_ends_is_cut() -> None:
    """Nobody has to hold more than the longest line."""
    lines = cut([b"x" * (LONGEST_LINE + 10)])
    assert [(line.byte_offset, len(line.text)) for line in lines] == [(0, LONGEST_LINE), (LONGEST_LINE, 10)]


@pytest.mark.parametrize("letter", ["ä", "€", "😀"])
def test_a_line_that_never_ends_is_cut_between_characters(letter: str) -> None:
    """However it lies, no letter is lost."""
    for before in range(5):
        text = "x" * before + letter * (LONGEST_LINE // 2)
        lines = cut([text.encode()])
        assert "".join(line.text for line in lines) == text
        assert all(len(line.text.encode()) <= LONGEST_LINE for line in lines)
    # Bytes that are no text have no letters.
    assert [line.byte_offset for line in cut([b"\x80" * (LONGEST_LINE + 10)])] == [0, LONGEST_LINE]


def test_what_does_not_follow_on_begins_a_line() -> None:
    """Behind a gap nothing is glued to what stood before it."""
    cutter = LineCutter()
    assert cutter.cut(0, b"one\ntw") == [Line(0, "one")]
    assert cutter.cut(50, b"three\n") == [Line(4, "tw"), Line(50, "three")]


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    """Binary output hurts nobody."""
    assert cut([b"a\xffb\n"]) == [Line(0, "a\ufffdb")]
