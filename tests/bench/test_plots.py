"""Plots are well-formed SVG that say everything in words as well, and the page takes the figures."""

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

from bench import environments
from bench.cell import Case, Measurement
from bench.page import PLACE, SHOWN, fill, publish
from bench.plots import drawings, file_name
from bench.results import Results
from bench.svg import Bar, bar_chart

SVG = "{http://www.w3.org/2000/svg}"
CASE = Case(scenario="B", name="drain, 1 process, 50 B")


def results(**values: float) -> Results:
    """The results of a run of one round."""
    made = Results.begin(jobs=1000, rounds=1)
    made.measurements = [
        Measurement(case=CASE, contestant=name, round=0, value=value, yardstick_ms=(1.0, 1.0))
        for name, value in values.items()
    ]
    return made


def test_a_chart_is_well_formed_whatever_its_words_are() -> None:
    """Names with the signs of XML in them do not break the file."""
    bar = Bar(label="<a> & 'b' \"c\"", value=2.0, least=1.0, most=3.0, shown="2 < 3")
    root = ElementTree.fromstring(bar_chart("a & b", "<jobs/s>", [bar]))  # noqa: S314 - our own text
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert root.tag == f"{SVG}svg"
    assert words == ["a & b", "<jobs/s>", "<a> & 'b' \"c\"", "2 < 3"]


def test_a_chart_of_nothing_is_well_formed() -> None:
    """Neither no bar nor a bar of zero divides by zero."""
    zero = Bar(label="idle", value=0.0, least=0.0, most=0.0, shown="0")
    for bars in ([], [zero]):
        ElementTree.fromstring(bar_chart("nothing", "jobs/s", bars))  # noqa: S314 - our own text


def test_the_longest_bar_belongs_to_the_best_and_the_order_is_best_first() -> None:
    """Bars are to scale, and named from the top down."""
    drawn = drawings(results(holdfast=400.0, pgqueuer=100.0))[file_name(CASE)]
    root = ElementTree.fromstring(drawn)  # noqa: S314 - our own text
    widths = [float(rect.attrib["width"]) for rect in root.iter(f"{SVG}rect")][1:]
    words = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert widths[0] == 4 * widths[1]
    assert words.index("Holdfast") < words.index("PgQueuer 1.6")


def test_whoever_is_alone_is_not_drawn() -> None:
    """A picture of one bar says nothing."""
    assert drawings(results(holdfast=400.0)) == {}


def test_the_page_keeps_a_place_for_results_and_only_that_changes(tmp_path: Path) -> None:
    """Publishing a run twice replaces what stood there, and leaves the prose alone."""
    page = tmp_path / "README.md"
    shutil.copy(environments.HOME / "README.md", page)
    before, after = (part for part in PLACE.split(page.read_text("utf-8")) if len(part) > 100)
    fill(page, results(holdfast=400.0, pgqueuer=100.0))
    fill(page, results(holdfast=500.0, pgqueuer=100.0))
    text = page.read_text("utf-8")
    assert "| PgQueuer 1.6 | 100 | 100 to 100 | 1 | 5.00 × |" in text
    assert text.count("PgQueuer 1.6") == 1
    assert text.startswith(before)
    assert text.endswith(after)


def test_a_run_is_published_with_its_figures_and_the_pictures_that_the_docs_show(tmp_path: Path) -> None:
    """Every picture of docs/benchmark.md is one that publishing draws, and the JSON can be read again."""
    home, docs = tmp_path / "bench", tmp_path / "docs"
    home.mkdir()
    docs.mkdir()
    shutil.copy(environments.HOME / "README.md", home / "README.md")
    run = results(holdfast=400.0, pgqueuer=100.0)
    run.measurements = [
        Measurement(case=case, contestant=name, round=0, value=2.0, yardstick_ms=(1.0, 1.0))
        for case in SHOWN
        for name in ("holdfast", "pgqueuer")
    ]
    publish(run, home, docs)
    assert Results.read(home / "results.json") == run
    text = (environments.HOME.parent / "docs" / "benchmark.md").read_text("utf-8")
    shown = {f"benchmark/{name}" for name in re.findall(r"\]\(benchmark/(.*?)\)", text)}
    assert shown == {f"benchmark/{path.name}" for path in (docs / "benchmark").iterdir()}
