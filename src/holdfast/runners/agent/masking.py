"""Keeps secrets out of a stream of output, however the stream is cut."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise

from holdfast.runners.agent.disguises import disguises

MASK = b"***"

# An encoder breaks its lines after 64 or 76 characters: a break after so many of them is none of the text's.
_RUN = 32
_BREAK = re.compile(rb"(?<=[A-Za-z0-9+/_-]{%d})\n" % _RUN)

Span = tuple[int, int]


class Masker:
    """Replaces every occurrence of a secret, plain or encoded, by ``***`` and changes nothing else.

    Occurrences that overlap are replaced together.  Bytes that may be the beginning of a secret are held
    back until it is known what they are, so that no cut of the stream can let a secret through.
    """

    def __init__(self, secrets: Iterable[bytes]) -> None:
        plain, encoded = disguises(secrets)
        self._plain, self._encoded = tuple(plain), tuple(encoded)
        self._held = b""
        # How many of the held bytes are covered by a mask that has been given out.
        self._covered = 0
        # What was given out last, as it was before: it says whether a line break belongs to an encoder.
        self._before = b""

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the stream; answers what may be shown by now."""
        if not (self._plain or self._encoded):
            return data
        window = self._held + data
        view = _View(window, self._before)
        return self._give_out(window, view, min(self._held_from(window, self._plain), self._held_view(view)))

    def end(self) -> bytes:
        """Take the end of the stream; answers the rest."""
        window = self._held
        return self._give_out(window, _View(window, self._before), len(window))

    def _give_out(self, window: bytes, view: _View, cut: int) -> bytes:
        shown: list[bytes] = []
        at, covered = 0, self._covered
        for start, end in sorted({*_found(window, self._plain), *view.spans(self._encoded)}):
            if start >= cut:
                break
            if start >= covered:
                shown += (window[max(at, covered) : start], MASK)
                at = start
            covered = max(covered, end)
        shown.append(window[max(at, covered) : cut])
        self._held, self._covered = window[cut:], max(0, covered - cut)
        self._before = (self._before + window[:cut])[-_RUN:]
        return b"".join(shown)

    def _held_from(self, text: bytes, patterns: tuple[bytes, ...]) -> int:
        return min((_unfinished(text, pattern) for pattern in patterns), default=len(text))

    def _held_view(self, view: _View) -> int:
        held = self._held_from(view.text, self._encoded)
        return view.place(held) if held < len(view.text) else view.size


class _View:
    """A window of the stream without the line breaks of an encoder."""

    def __init__(self, window: bytes, before: bytes) -> None:
        self.size = len(window)
        known = len(before)
        breaks = [found.start() - known for found in _BREAK.finditer(before + window)]
        self._breaks = [place for place in breaks if place >= 0]
        self.text = window
        if self._breaks:
            edges = [-1, *self._breaks, self.size]
            self.text = b"".join(window[start + 1 : end] for start, end in pairwise(edges))
        # Where in the text each break was taken out.
        self._taken = [place - number for number, place in enumerate(self._breaks)]

    def place(self, index: int) -> int:
        """Return where in the window the byte *index* of the text is."""
        return index + bisect_right(self._taken, index)

    def spans(self, patterns: tuple[bytes, ...]) -> Iterator[Span]:
        """Find the patterns in the text; the places are the window's."""
        for start, end in _found(self.text, patterns):
            yield self.place(start), self.place(end - 1) + 1


def _found(text: bytes, patterns: tuple[bytes, ...]) -> Iterator[Span]:
    for pattern in patterns:
        start = text.find(pattern)
        while start >= 0:
            yield start, start + len(pattern)
            start = text.find(pattern, start + 1)


def _unfinished(text: bytes, pattern: bytes) -> int:
    """Return where the longest beginning of *pattern* that ends *text* starts; its length for none."""
    start = text.find(pattern[:1], max(0, len(text) - len(pattern) + 1))
    while start >= 0:
        if pattern.startswith(text[start:]):
            return start
        start = text.find(pattern[:1], start + 1)
    return len(text)
