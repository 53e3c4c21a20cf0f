"""Verdicts compare round by round, with the best there is."""

from pathlib import Path

import pytest

from bench.catalogue import Contestant, contestant
from bench.cell import Case, Cell, Figures, Measurement, Scale
from bench.exactly_once import NotExactlyOnce
from bench.identity import Code
from bench.results import Results
from bench.run import order, run
from bench.scenarios import runs
from bench.scenarios.drains import name
from bench.verdicts import verdicts

DRAIN = Case(scenario="B", name=name(1, 50))
FRESH, WORSE = Case(scenario="D", name="fresh"), Case(scenario="D", name="a bad day", fresh="fresh")


def measured(case: Case, **rounds: tuple[float, ...]) -> list[Measurement]:
    """The figures of a case, one for each round."""
    return [
        Measurement(case=case, contestant=name, round=number, value=value, yardstick_ms=(1.0, 1.0))
        for name, values in rounds.items()
        for number, value in enumerate(values)
    ]


def results(*measurements: Measurement) -> Results:
    """The results of a run."""
    made = Results.begin(jobs=1000, rounds=2, code=Code("2222f94"))
    made.measurements = list(measurements)
    return made


def test_the_best_peer_is_found_and_compared_round_by_round() -> None:
    """The ratio is to whoever has the best median, among all and among those in Python."""
    figures = measured(
        DRAIN, holdfast=(30.0, 60.0), graphile_worker=(20.0, 40.0), pgqueuer=(10.0, 20.0), floor=(40.0, 80.0)
    )
    found = {one.what: (one.found.median, one.is_kept) for one in verdicts(results(*figures))}
    assert found == {
        "B: drain, 1 process, 50 B ÷ best peer of any language (graphile_worker)": (1.5, True),
        "B: drain, 1 process, 50 B ÷ best Python peer (pgqueuer)": (3.0, False),
        "B: drain, 1 process, 50 B ÷ floor, one connection": (0.75, False),
    }


def test_a_bad_day_is_compared_with_the_fresh_one() -> None:
    """What is left of the pace is a ratio within Holdfast."""
    figures = measured(FRESH, holdfast=(100.0, 50.0)) + measured(WORSE, holdfast=(95.0, 47.5))
    (verdict,) = verdicts(results(*figures))
    assert verdict.what == "D: a bad day ÷ fresh"
    assert verdict.found.median == pytest.approx(0.95)
    assert verdict.is_kept


def test_a_run_may_be_made_in_parts() -> None:
    """What was measured at different times is reported as one, with the reasons of every part."""
    drains, days = (
        results(*measured(DRAIN, holdfast=(30.0,))),
        results(*measured(FRESH, holdfast=(100.0, 50.0))),
    )
    drains.rounds, days.left_out = 1, {"Oban": "no Python 3.12"}
    whole = Results.joined([drains, days])
    assert whole.cases() == [DRAIN, FRESH]
    assert (whole.rounds, whole.left_out) == (2, {"Oban": "no Python 3.12"})


def test_more_rounds_of_a_cell_are_counted_on() -> None:
    """Each is divided by its neighbour in time, and not by one of another evening."""
    evening = results(*measured(DRAIN, holdfast=(30.0, 40.0), pgqueuer=(10.0,)))
    later = results(*measured(DRAIN, holdfast=(50.0,), pgqueuer=(25.0,)))
    whole = Results.joined([evening, later])
    assert whole.rounds_of(DRAIN) == {"holdfast": {0: 30.0, 1: 40.0, 2: 50.0}, "pgqueuer": {0: 10.0, 2: 25.0}}
    assert whole.rounds == 3


def test_runs_are_held_against_the_better_of_their_peers() -> None:
    """Three times as fast, no more than two rows for a step, and no more memory beside a million sleepers."""
    made = results(
        *measured(runs.WOKEN, holdfast=(900.0, 1000.0), dbos=(100.0, 110.0), absurd=(300.0, 400.0)),
        *measured(runs.ROWS, holdfast=(2.0, 2.1)),
        *measured(runs.MEMORY, holdfast=(50.0, 60.0)),
        *measured(runs.beside_million(runs.MEMORY), holdfast=(52.0, 60.0)),
    )
    found = {one.what: (round(one.found.median, 2), one.is_kept) for one in verdicts(made)}
    assert found == {
        "W: woken by a signal, and done ÷ best peer (absurd)": (2.75, False),
        "W: memory of a worker, beside 1,000,000 asleep ÷ without": (1.02, True),
        "W: rows written per step": (2.05, False),
    }


def test_a_run_without_one_side_has_no_verdict() -> None:
    """Nothing is claimed where nothing was compared."""
    assert list(verdicts(results(*measured(DRAIN, holdfast=(30.0,))))) == []


def test_results_survive_the_way_through_their_file(tmp_path: Path) -> None:
    """What was written is what is read."""
    made = results(*measured(DRAIN, holdfast=(30.0, 60.0)))
    made.left_out["a peer"] = "needs Python 3.12"
    made.write(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json") == made


def test_a_cell_that_is_not_exactly_once_is_told_as_a_failure(tmp_path: Path) -> None:
    """It leaves no figure, and the run goes on."""

    async def measure(peer: Contestant, _: Scale) -> Figures:
        if peer.name == "pgqueuer":
            raise NotExactlyOnce("1 executed more than once")
        return {DRAIN: 1.0}

    both = (contestant("holdfast"), contestant("pgqueuer"))
    cell = Cell(scenario="B", name="drain", measure=measure, contestants=both)
    made = results()
    run([cell], Scale(), made, tmp_path / "results.json", lambda _: None)
    assert [one.contestant for one in made.measurements] == ["holdfast", "holdfast"]
    assert [(one.contestant, one.reason) for one in made.failures] == [
        ("pgqueuer", "1 executed more than once")
    ] * 2
    assert Results.read(tmp_path / "results.json") == made


def test_every_round_has_every_contestant_in_an_order_of_its_own() -> None:
    """Who is measured first changes from round to round, and nobody is left out."""

    async def measure(_: Contestant, __: Scale) -> Figures:
        return {}

    everybody = tuple(contestant(one) for one in ("holdfast", "pgqueuer", "oban", "chancy", "floor"))
    cells = [Cell(scenario="B", name=str(n), measure=measure, contestants=everybody) for n in range(2)]
    rounds = [[(cell.name, one.name) for cell, one in order(cells, number, 7)] for number in range(4)]
    assert len({tuple(names) for names in rounds}) > 1
    for names in rounds:
        assert sorted(names) == sorted((cell.name, one.name) for cell in cells for one in everybody)
        assert [cell for cell, _ in names] == ["0"] * 5 + ["1"] * 5


def test_a_seed_repeats_an_order_and_another_leads_to_another() -> None:
    """Parts of one round each, drawn from the round's number alone, would all have the same order."""

    async def measure(_: Contestant, __: Scale) -> Figures:
        return {}

    everybody = tuple(contestant(one) for one in ("holdfast", "pgqueuer", "oban", "chancy", "floor"))
    cells = [Cell(scenario="B", name=str(n), measure=measure, contestants=everybody) for n in range(2)]
    orders = {seed: [one.name for _, one in order(cells, 0, seed)] for seed in range(8)}
    assert len({tuple(names) for names in orders.values()}) > 4
    assert [one.name for _, one in order(cells, 0, 3)] == orders[3]
