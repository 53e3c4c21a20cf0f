"""Where Holdfast must stand, and whether it does: ratios of one run, round by round, and their medians."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from rich.table import Table

from bench.catalogue import FLOOR, FLOOR_IN_PYTHON, HOLDFAST, PEERS, Language
from bench.cell import Case
from bench.figures import Summary, paired_ratio, summary
from bench.results import Results
from bench.scenarios import drains, inserts, latency, runs, scaling

NOISE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One promise: what is compared, what came out, and the bound it has to keep.

    Without a bound it is no promise, and stands beside one to be read with it.
    """

    what: str
    found: Summary
    bound: float | None
    at_most: bool = False
    unit: str = "×"

    @property
    def is_kept(self) -> bool:
        """Whether the median keeps the bound."""
        if self.bound is None:
            return True
        return self.found.median <= self.bound if self.at_most else self.found.median >= self.bound

    @property
    def asked(self) -> str:
        """The bound in signs, nothing where there is none."""
        return "" if self.bound is None else f"{'≤' if self.at_most else '≥'} {self.bound:g}"


def verdicts(results: Results) -> Iterator[Verdict]:
    """Yield every promise for which the run has both sides."""
    yield from _drains(results)
    yield from _inserts(results)
    yield from _latencies(results)
    yield from _fresh(results)
    yield from _costs(results)
    yield from _scaling(results)
    yield from _runs(results)


def table(results: Results) -> Table:
    """Return the promises as a table."""
    made = Table(title="Where Holdfast must stand", title_justify="left", box=None, header_style="bold")
    for name in ("promise", "median", "least to most", "bound", ""):
        made.add_column(name, justify="left" if name == "promise" else "right", no_wrap=name != "promise")
    for one in verdicts(results):
        found = one.found
        spread = f"{found.least:.2f} to {found.most:.2f}"
        verdict = "" if one.bound is None else "kept" if one.is_kept else "short"
        made.add_row(one.what, f"{found.median:.2f} {one.unit}", spread, one.asked, verdict)
    return made


def against(
    results: Results,
    case: Case,
    other: str,
    what: str,
    bound: float | None,
    *,
    of: Case | None = None,
    who: str = HOLDFAST.name,
) -> Iterator[Verdict]:
    """Yield Holdfast's figures, or *who*'s, divided by another's: in the same case unless *of* says which."""
    ours = results.rounds_of(case).get(who, {})
    theirs = results.rounds_of(of or case).get(other, {})
    if (found := paired_ratio(ours, theirs)) is not None:
        yield Verdict(what=what, found=found, bound=bound, at_most=case.less_is_better)


def best(results: Results, case: Case, names: Iterable[str]) -> str | None:
    """Return who of *names* has the best median in a case, None if nobody was measured."""
    medians = {
        name: summary(list(rounds.values())).median
        for name, rounds in results.rounds_of(case).items()
        if name in set(names)
    }
    choose: Callable[..., str] = min if case.less_is_better else max
    return choose(medians, key=lambda name: medians[name]) if medians else None


def _against_best(
    results: Results, case: Case, names: Iterable[str], who: str, bound: float
) -> Iterator[Verdict]:
    if (name := best(results, case, names)) is not None:
        yield from against(results, case, name, f"{case.scenario}: {case.name} ÷ best {who} ({name})", bound)


ANY = tuple(peer.name for peer in PEERS)
PYTHON = tuple(peer.name for peer in PEERS if peer.language is Language.PYTHON)


def _drains(results: Results) -> Iterator[Verdict]:
    one, two = (Case(scenario="B", name=drains.name(processes, 50)) for processes in (1, 2))
    yield from _against_best(results, one, ANY, "peer of any language", 1.5)
    yield from _against_best(results, one, PYTHON, "Python peer", 4.0)
    yield from against(results, one, FLOOR.name, f"B: {one.name} ÷ floor, one connection", 0.9)
    yield from against(results, two, FLOOR.name, f"B: {two.name} ÷ floor, two connections", 0.7)


def _inserts(results: Results) -> Iterator[Verdict]:
    bulk = drains.bulk_case(50)
    yield from _against_best(results, bulk, ANY, "peer", 1.0)
    yield from against(results, bulk, FLOOR.name, f"A: {bulk.name} ÷ COPY of the same rows", 0.6)
    bare = inserts.case(inserts.EIGHT, False)
    busy, shared = inserts.case(inserts.EIGHT, True), inserts.case(inserts.SHARED, True)
    for ours, floor, loop, of, bound in (
        (busy, FLOOR, "bare insert loop, 8 clients", bare, 0.8),
        (busy, FLOOR, "the same beside bare workers", busy, None),
        (busy, FLOOR_IN_PYTHON, "the same loop in Python, 8 clients", bare, None),
        (shared, FLOOR, "bare insert loop, 8 clients", bare, None),
    ):
        yield from against(results, ours, floor.name, f"A: {ours.name} ÷ {loop}", bound, of=of)
    what = "A: bare insert loop, 8 clients, beside bare workers ÷ alone"
    yield from against(results, busy, FLOOR.name, what, None, of=bare, who=FLOOR.name)


def _latencies(results: Results) -> Iterator[Verdict]:
    for name in latency.SHARES:
        if name != "p95":
            idle = latency.case("idle", name)
            yield from _against_best(results, idle, ANY, "peer of any language", 1.0)
            what = f"C: {idle.name} ÷ bare LISTEN and claim in Python"
            yield from against(results, idle, FLOOR_IN_PYTHON.name, what, None)


def _fresh(results: Results) -> Iterator[Verdict]:
    bounds = {"D": 0.9, "E": 0.8}
    for case in results.cases():
        if case.fresh is not None and case.scenario in bounds:
            fresh = Case(scenario=case.scenario, name=case.fresh)
            what = f"{case.scenario}: {case.name} ÷ {case.fresh}"
            yield from against(results, case, HOLDFAST.name, what, bounds[case.scenario], of=fresh)


def _costs(results: Results) -> Iterator[Verdict]:
    bounds = {"worker's processor time per job": 20.0, "statements per 100 jobs": 5.0}
    for case in results.cases():
        if case.scenario == "F" and case.name in bounds:
            rounds = results.rounds_of(case).get(HOLDFAST.name, {})
            if rounds:
                found = summary(list(rounds.values()))
                yield Verdict(
                    what=f"F: {case.name}", found=found, bound=bounds[case.name], at_most=True, unit=case.unit
                )


def _scaling(results: Results) -> Iterator[Verdict]:
    steps = [scaling.case(slots, processes) for slots, processes in scaling.FLEETS]
    ours = partial(against, results, other=HOLDFAST.name)
    for less, more in pairwise(steps):
        yield from ours(more, what=f"G: {more.name} ÷ {less.name}", bound=NOISE, of=less)
    one = scaling.case(scaling.SLOTS[-1], 1)
    yield from ours(steps[-1], what=f"G: {steps[-1].name} ÷ {one.name}", bound=1.0, of=one)


def _runs(results: Results) -> Iterator[Verdict]:
    for case in runs.RATES:
        yield from _against_best(results, case, ANY, "peer", 3.0)
    for fresh, bound in ((runs.ASLEEP, NOISE), (runs.WOKEN, NOISE), (runs.MEMORY, 1.1)):
        beside = runs.beside_million(fresh)
        yield from against(results, beside, HOLDFAST.name, f"W: {beside.name} ÷ without", bound, of=fresh)
    rows = results.rounds_of(runs.ROWS).get(HOLDFAST.name, {})
    if rows:
        found = summary(list(rows.values()))
        yield Verdict(what=f"W: {runs.ROWS.name}", found=found, bound=2.0, at_most=True, unit="")
