"""The check: was every push processed exactly once?  Asked of the clients, the database and git itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.forge import git, repositories
from examples.forge.database import Connection
from examples.forge.scene.clients import Ledger, PushedRef
from examples.forge.scene.fleet import Death


@dataclass(frozen=True, slots=True)
class Finding:
    """One question of the check: what is claimed, and what speaks against it."""

    claim: str
    against: list[str]


@dataclass(frozen=True, slots=True)
class Check:
    """Compares what clients did with what the forge made of it.

    *doomed* are the jobs that were enqueued in order to fail; *death* is the end of the killed worker,
    *exit_codes* say how all of them ended.
    """

    connection: Connection
    root: Path
    ledger: Ledger
    doomed: frozenset[int] = frozenset()
    death: Death | None = None
    exit_codes: Mapping[str, int] = field(default_factory=dict)

    def findings(self) -> list[Finding]:
        """Answer every question."""
        questions: list[tuple[str, Callable[[], list[str]]]] = [
            ("no push was refused", lambda: list(self.ledger.refused)),
            ("every pushed ref is one event, and no event was made up", self._events),
            ("every event is marked as processed", self._unprocessed),
            ("every event had its effect exactly once", self._effects),
            ("every event has exactly one job, and it is completed", self._jobs),
            ("every repository counts the pushes that it got", self._counters),
            ("refs, default branch and size are what git has on disk", self._disk),
            ("no job failed but those that had to", self._failures),
            ("every job of the killed worker was run again by another", self._rescue),
            ("every other worker stopped in good order", self._stops),
        ]
        return [Finding(claim, ask()) for claim, ask in questions]

    def _rows(self, text: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self.connection.execute(text.encode(), parameters).fetchall()

    def _events(self) -> list[str]:
        pushed = Counter(self.ledger.refs())
        rows = self._rows("select repository_id, ref, before_sha, after_sha from forge.push_events")
        recorded = Counter(PushedRef(*row) for row in rows)
        lost = [f"lost: {ref}" for ref in (pushed - recorded).elements()]
        return lost + [f"nobody pushed: {ref}" for ref in (recorded - pushed).elements()]

    def _unprocessed(self) -> list[str]:
        rows = self._rows("select id, ref from forge.push_events where processed_at is null order by id")
        return [f"event {event_id} of {ref} was never processed" for event_id, ref in rows]

    def _effects(self) -> list[str]:
        rows = self._rows(
            "select coalesce(e.id, a.event_id), count(a.id) from forge.push_events e "
            "full join forge.activities a on a.event_id = e.id group by 1, e.id "
            "having count(a.id) <> 1 or e.id is null order by 1"
        )
        return [f"event {event_id} had its effect {count} times" for event_id, count in rows]

    def _jobs(self) -> list[str]:
        rows = self._rows(
            "select e.id, count(j.id), count(j.id) filter (where j.state = 'completed') "
            "from forge.push_events e left join holdfast.job_overview j "
            "on j.kind = 'push:process' and j.args->>'event_id' = e.id::text "
            "group by e.id having count(j.id) <> 1 or count(j.id) filter (where j.state = 'completed') <> 1 "
            "order by e.id"
        )
        return [f"event {event_id} has {jobs} jobs, {done} completed" for event_id, jobs, done in rows]

    def _counters(self) -> list[str]:
        rows = self._rows(
            "select r.owner || '/' || r.name, r.push_count, count(e.id) from forge.repositories r "
            "left join forge.push_events e on e.repository_id = r.id group by r.id "
            "having r.push_count <> count(e.id) order by r.id"
        )
        return [f"{name} counts {counted} and got {got}" for name, counted, got in rows]

    def _disk(self) -> list[str]:
        rows = self._rows(
            "select id, owner, name, head_sha, size_bytes from forge.repositories "
            "where size_bytes is not null order by id"
        )
        return [problem for row in rows for problem in self._on_disk(*row)]

    def _on_disk(self, repository_id: int, owner: str, name: str, head: str | None, size: int) -> list[str]:
        path = repositories.place(self.root, owner, name)
        listed = git.run("for-each-ref", "--format=%(refname) %(objectname)", folder=path).splitlines()
        on_disk = dict(line.split() for line in listed)
        newest = self._newest_events(repository_id)
        differing = [ref for ref, sha in newest.items() if on_disk.get(ref, git.NOTHING) != sha]
        problems = [f"{owner}/{name}: {ref} is not where its newest event left it" for ref in differing]
        if on_disk.get(repositories.DEFAULT_BRANCH) != head:
            problems.append(f"{owner}/{name}: the default branch is noted at {head}")
        if (real := repositories.bytes_on_disk(path)) != size:
            problems.append(f"{owner}/{name}: {size} bytes are noted, {real} are there")
        return problems

    def _newest_events(self, repository_id: int) -> dict[str, str]:
        rows = self._rows(
            "select distinct on (ref) ref, after_sha from forge.push_events where repository_id = %s "
            "order by ref, pushed_at desc",
            repository_id,
        )
        return dict(rows)

    def _failures(self) -> list[str]:
        rows = self._rows(
            "select id, kind, reason from holdfast.job_overview where state = 'failed' order by id"
        )
        failed = {job_id: f"job {job_id} ({kind}) failed: {reason}" for job_id, kind, reason in rows}
        unexpected = [text for job_id, text in failed.items() if job_id not in self.doomed]
        return unexpected + [f"job {job_id} did not fail" for job_id in sorted(self.doomed - failed.keys())]

    def _rescue(self) -> list[str]:
        if self.death is None:
            return []
        if not self.death.held:
            return [f"{self.death.worker} held nothing when it was killed"]
        return [problem for job in self.death.held for problem in self._rescued(job.job_id, job.attempt)]

    def _rescued(self, job_id: int, attempt: int) -> list[str]:
        rows = self._rows(
            "select from holdfast.job_overview "
            "where id = %s and attempt > %s and state in ('completed', 'cancelled')",
            job_id,
            attempt,
        )
        return [] if rows else [f"job {job_id} did not end in a later attempt than {attempt}"]

    def _stops(self) -> list[str]:
        killed = self.death.worker if self.death else None
        ended = {name: code for name, code in self.exit_codes.items() if name != killed}
        return [f"{name} ended with {code}" for name, code in ended.items() if code != 0]
