"""The inspection of the yard: what the database, the service and the witnesses say must be one story."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from examples.forge.database import Connection
from examples.forge.scene import report
from examples.forge.scene.check import Finding
from examples.forge.yard.caller import Caller
from examples.forge.yard.crew import RUNNERS
from examples.forge.yard.errands import ERRANDS, PATROL

if TYPE_CHECKING:
    from examples.forge.yard.act import Act

_ENDS = "select job_id, count(*), min(outcome) from holdfast.finished_jobs where job_id = any (%s) group by 1"
_ATTEMPTS = """
select a.job_id, a.attempt, w.name, a.outcome from holdfast.assignments a
join holdfast.workers w on w.id = a.worker_id where a.job_id = any (%s) order by 1, 2
"""
_BROKEN = """
select job_id, attempt, stream from holdfast.log_streams
where job_id = any (%s) and intact is false order by 1, 2, 3
"""
_RUNGS = "select rungs from holdfast.assignments where job_id = %s order by attempt desc limit 1"
_ARTIFACTS = "select name, size from holdfast.artifacts where job_id = %s"
LADDER = ("delivered", "acknowledged", "interrupted")


class Inspection:
    """Compares what was asked with what was done: *act* says what happened, *witness* what was written."""

    def __init__(self, connection: Connection, caller: Caller, witness: Path, act: Act) -> None:
        self._connection, self._caller, self._witness, self._act = connection, caller, witness, act
        self._errands = dict(zip(act.jobs, ERRANDS, strict=True))
        self._attempts = self._rows(_ATTEMPTS, act.jobs)

    def findings(self) -> list[Finding]:
        """Answer every question."""
        questions: list[tuple[str, Callable[[], list[str]]]] = [
            ("every command ended once, and as it had to", self._ends),
            ("the service says of each what the database says", self._stories),
            ("what the killed runner held was run again by the other one", self._rescue),
            ("no attempt began twice", self._doubles),
            ("every log is byte for byte what the command wrote", self._logs),
            ("what was followed live is the whole log", self._followed),
            ("the cancel went down its ladder to the program", self._ladder),
            ("every file that had to be kept is there", self._artifacts),
            ("the audit log knows who came and who cancelled, and from where", self._audit),
        ]
        return [Finding(claim, ask()) for claim, ask in questions]

    def show(self, console: Console) -> None:
        """Print what became of every command."""
        rows = []
        for job_id, errand in self._errands.items():
            job = self._caller.job(job_id)["job"]
            tries = [(name, outcome) for job, _, name, outcome in self._attempts if job == job_id]
            where = ", ".join(f"{name} ({outcome or 'lost'})" for name, outcome in tries)
            rows.append((job_id, errand.title, job["state"], job["reason"] or "", where))
        columns = ("job", "command", "ended", "because", "attempts")
        report.table(console, "What became of the commands", columns, rows)

    def _rows(self, text: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(text.encode(), parameters).fetchall()

    def _ends(self) -> list[str]:
        ends = {job_id: (count, outcome) for job_id, count, outcome in self._rows(_ENDS, self._act.jobs)}
        return [
            f"job {job_id} ({errand.title}) ended {ends.get(job_id)}, not once as {errand.outcome}"
            for job_id, errand in self._errands.items()
            if ends.get(job_id) != (1, errand.outcome)
        ]

    def _stories(self) -> list[str]:
        told = {job_id: self._caller.job(job_id)["job"]["state"] for job_id in self._act.jobs}
        known = {job_id: outcome for job_id, _, outcome in self._rows(_ENDS, self._act.jobs)}
        return [f"job {job_id}: {told[job_id]}" for job_id in told if told[job_id] != known.get(job_id)]

    def _rescue(self) -> list[str]:
        lost = [
            (job_id, attempt)
            for job_id, attempt, name, outcome in self._attempts
            if name == self._act.killed and outcome in (None, "lost")
        ]
        heirs = {(job_id, attempt): name for job_id, attempt, name, _ in self._attempts}
        forgotten = [
            f"job {job_id} was not run again by the other runner after attempt {attempt}"
            for job_id, attempt in lost
            if heirs.get((job_id, attempt + 1)) in (None, self._act.killed)
        ]
        return forgotten if lost else [f"{self._act.killed} held nothing when it was killed"]

    def _doubles(self) -> list[str]:
        seen = [(job_id, attempt) for job_id, attempt, *_ in self._attempts]
        return [f"attempt {one} is there twice" for one in set(seen) if seen.count(one) > 1]

    def _logs(self) -> list[str]:
        broken = [f"the log of {one} is damaged" for one in self._rows(_BROKEN, self._act.jobs)]
        for job_id, attempt, name, outcome in self._attempts:
            kept, file = self._caller.log(job_id, attempt), self._witness / f"{job_id}-{attempt}"
            written = file.read_bytes() if file.exists() else b""
            # What a killed runner had not sent yet is gone with it; what it had sent is what was written.
            # What it had begun a moment before is released, for nobody knew that it had.
            whole = outcome not in (None, "lost") and (name, outcome) != (self._act.killed, "released")
            if kept != (written if whole else written[: len(kept)]):
                broken.append(f"job {job_id} attempt {attempt}: {len(kept)} bytes, {len(written)} written")
        return broken

    def _followed(self) -> list[str]:
        wrong = []
        for tail in self._act.tails:
            tries = [attempt for job_id, attempt, *_ in self._attempts if job_id == tail.job_id]
            whole = b"".join(self._caller.log(tail.job_id, attempt) for attempt in tries)
            if tail.heard != whole.decode().splitlines():
                wrong.append(f"job {tail.job_id}: {len(tail.heard)} lines were heard")
        return wrong

    def _ladder(self) -> list[str]:
        patrol = next(job_id for job_id, errand in self._errands.items() if errand is PATROL)
        [(rungs,)] = self._rows(_RUNGS, patrol)
        return [f"{rung} is missing" for rung in LADDER if rung not in rungs]

    def _artifacts(self) -> list[str]:
        wanted = [(job_id, one.artifact) for job_id, one in self._errands.items() if one.artifact]
        kept = {job_id: dict(self._rows(_ARTIFACTS, job_id)) for job_id, _ in wanted}
        return [f"job {job_id}: {name} is missing" for job_id, name in wanted if not kept[job_id].get(name)]

    def _audit(self) -> list[str]:
        acts = self._caller.acts()
        came = {act["address"] for act in acts if act["action"] == "runner.register"}
        names = [act for act in acts if act["action"] == "runner.register"]
        cancels = [(act["actor"], act["address"]) for act in acts if act["action"] == "job.cancel"]
        problems = [] if cancels == [("ada", "127.0.0.1")] else [f"cancels: {cancels}"]
        if len(names) != len(RUNNERS) or came != {"127.0.0.1"}:
            problems.append(f"registrations: {names}")
        return problems
