"""A horizontal bar chart as SVG: us in one colour, the others in another, whiskers from least to most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

ROW, LABELS, BARS, FIGURES, TOP = 24, 210, 420, 130, 46
INK, OURS, THEIRS, FLOOR_INK = "#1c2430", "#0b6e6e", "#9fb3c8", "#d9b44a"
FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar; *least* and *most* are the ends of its whisker."""

    label: str
    value: float
    least: float
    most: float
    shown: str
    colour: str = THEIRS


def bar_chart(title: str, subtitle: str, bars: Sequence[Bar]) -> str:
    """Draw *bars* from the top down on one scale that begins at zero; readable without its colours."""
    width, height = LABELS + BARS + FIGURES, TOP + ROW * len(bars) + 12
    root = Element(
        "svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}", role="img", fill=INK
    )
    root.set("font-family", FONT)
    SubElement(root, "title").text = f"{title}, {subtitle}"
    SubElement(root, "rect", width=str(width), height=str(height), fill="#ffffff")
    _text(root, 12, 20, title, size=15, weight="600")
    _text(root, 12, 37, subtitle, size=11)
    full = max((bar.most for bar in bars), default=0.0) or 1.0
    for place, bar in enumerate(bars):
        _draw(root, bar, TOP + ROW * place, BARS / full)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _draw(root: Element, bar: Bar, top: int, step: float) -> None:
    middle = top + ROW / 2
    _text(root, LABELS - 8, middle + 4, bar.label, size=12, anchor="end")
    length = max(1.0, bar.value * step)
    SubElement(
        root,
        "rect",
        x=str(LABELS),
        y=str(top + 4),
        width=f"{length:.1f}",
        height=str(ROW - 8),
        fill=bar.colour,
    )
    least, most = (LABELS + value * step for value in (bar.least, bar.most))
    SubElement(
        root,
        "line",
        x1=f"{least:.1f}",
        x2=f"{most:.1f}",
        y1=str(middle),
        y2=str(middle),
        stroke=INK,
        opacity="0.55",
    )
    _text(root, max(LABELS + length, most) + 6, middle + 4, bar.shown, size=12)


def _text(
    root: Element, x: float, y: float, words: str, *, size: int, weight: str = "400", anchor: str = "start"
) -> None:
    made = SubElement(root, "text", x=f"{x:.1f}", y=f"{y:.1f}")
    made.set("font-size", str(size))
    made.set("font-weight", weight)
    made.set("text-anchor", anchor)
    made.text = words
