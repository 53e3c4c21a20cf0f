"""The JSON file of a run: the machine, the settings, every single figure."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import psutil

from bench.cell import Case, Failure, Measurement
from bench.cluster import SETTINGS, VERSION, shared_buffers
from bench.identity import METHOD, Code

# What of a machine may change between the parts of a run.
PASSING = frozenset({"memory", "system"})


class DifferentRuns(Exception):
    """Parts that were measured in different ways are not one run."""


class Results(msgspec.Struct, kw_only=True):
    """Everything that a run found; *left_out* says why a peer has no figures.

    *is_small*: there were fewer of everything, whatever the names of the cases say.  *method*, *code* and
    *versions* of the peers are what was measured; the first files did not say.  *seeds* are those of its
    parts, from which the orders of contestants were drawn.
    """

    machine: dict[str, str]
    settings: dict[str, str]
    jobs: int
    rounds: int
    measurements: list[Measurement] = []
    failures: list[Failure] = []
    left_out: dict[str, str] = {}
    is_small: bool = False
    method: int = 1
    code: Code = Code()
    versions: dict[str, str] = {}
    seeds: list[int] = []

    @classmethod
    def begin(
        cls, *, jobs: int, rounds: int, is_small: bool = False, code: Code | None = None, seed: int = 0
    ) -> Results:
        """Return the empty results of a run on this machine."""
        return cls(
            machine=_machine(),
            settings=SETTINGS | {"shared_buffers": shared_buffers()},
            jobs=jobs,
            rounds=rounds,
            is_small=is_small,
            method=METHOD,
            code=code or Code(),
            seeds=[seed],
        )

    @classmethod
    def read(cls, path: Path) -> Results:
        """Read what `write` wrote."""
        return msgspec.json.decode(path.read_bytes(), type=cls)

    @classmethod
    def joined(cls, parts: Sequence[Results]) -> Results:
        """Return the results of a run that was made in *parts* on one machine, of the same code.

        Their rounds are counted on from part to part, so that nothing is compared with what another had.
        Raises `DifferentRuns` where one was measured in another way.
        """
        for number, part in enumerate(parts):
            for earlier in parts[:number]:
                check_alike(earlier, part)
        measurements = list[Measurement]()
        for part in parts:
            begun = max((one.round + 1 for one in measurements), default=0)
            measurements += [
                msgspec.structs.replace(one, round=begun + one.round) for one in part.measurements
            ]
        counted = Counter((one.case, one.contestant) for one in measurements)
        return cls(
            machine=parts[0].machine,
            settings=parts[0].settings,
            jobs=parts[0].jobs,
            rounds=max(counted.values(), default=0),
            measurements=measurements,
            failures=[one for part in parts for one in part.failures],
            left_out={name: reason for part in parts for name, reason in part.left_out.items()},
            is_small=parts[0].is_small,
            method=parts[0].method,
            code=parts[0].code,
            versions={label: version for part in parts for label, version in part.versions.items()},
            seeds=[seed for part in parts for seed in part.seeds],
        )

    def write(self, path: Path) -> None:
        """Write everything; whoever reads at the same time finds the old or the new whole."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))
        fresh.replace(path)

    def cases(self) -> list[Case]:
        """Return every row that has a figure, by scenario and then as they were measured."""
        seen = dict.fromkeys(one.case for one in self.measurements)
        return sorted(seen, key=lambda case: case.scenario)

    def rounds_of(self, case: Case) -> Mapping[str, Mapping[int, float]]:
        """Return the figures of a case: by contestant, by round."""
        found: dict[str, dict[int, float]] = {}
        for one in self.measurements:
            if one.case == case:
                found.setdefault(one.contestant, {})[one.round] = one.value
        return found


def check_alike(one: Results, other: Results) -> None:
    """Hold the ways in which two parts were measured against each other; raises `DifferentRuns`."""
    if one.method != other.method:
        msg = (
            f"one is of method {one.method} (code {one.code}) and another of method {other.method} "
            f"(code {other.code}): what was published by an older method is replaced and not added to"
        )
        raise DifferentRuns(msg)
    if one.code != other.code:
        msg = f"these are no parts of one run: one is of code {one.code} and another of code {other.code}"
        raise DifferentRuns(msg)
    if not one.code.is_certain:
        msg = f"whether both are of the same code cannot be told: {one.code}"
        raise DifferentRuns(msg)
    for name, value in _manner(one).items():
        if (differs := _manner(other).get(name, value)) != value:
            msg = f"these are no parts of one run: {name} is {value} in one and {differs} in another"
            raise DifferentRuns(msg)


def _manner(results: Results) -> dict[str, object]:
    machine = {name: value for name, value in results.machine.items() if name not in PASSING}
    how = {"jobs": results.jobs, "small": results.is_small}
    return {**how, **machine, **results.settings, **results.versions}


def _machine() -> dict[str, str]:
    return {
        "processors": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total >> 30} GB",
        "architecture": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "postgresql": str(VERSION),
    }
