"""Takes in how assignments ended, and decides what follows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from holdfast.errors import AssignmentStale, JobNotFound
from holdfast.model.outcome import PutBack
from holdfast.model.runner import Rung
from holdfast.rules.backoff import DEFAULT_BACKOFF, stored_backoff
from holdfast.rules.reports import End, Facts, after_report, outcome_of
from holdfast.runtime.events import Events
from holdfast.store import assignments, attempts
from holdfast.store.assignments import EndFacts, Noted
from holdfast.store.attempts import Ended, Fence, Returned
from holdfast.store.batcher import Batcher
from holdfast.store.database import Connection, Database, begun_anew
from holdfast.store.jobs import announce_room


@dataclass(frozen=True, slots=True)
class Reported:
    """What a runner reports of an assignment; *text* is the report as JSON, as it is kept.

    *rung* is how far its cancel had come: the end may overtake the sync that would have told.
    """

    fence: Fence
    worker_id: int
    end: End
    text: str
    rung: Rung | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """What came of a report; *repeated* says that the same one had come before."""

    outcome: str
    repeated: bool


class Ends:
    """Ends assignments as their runners report, many with one transaction."""

    def __init__(self, database: Database, events: Events) -> None:
        self._database, self._events = database, events
        self._batcher = Batcher(self._end_batch)

    async def end(self, reported: Reported) -> Accepted:
        """End an assignment; raises `AssignmentStale`, and then the report is kept as evidence."""
        accepted = await self._batcher.submit(reported)
        if accepted is not None:
            return accepted
        await self._database.run(assignments.keep_evidence(reported.fence, reported.worker_id, reported.text))
        raise await stale(self._database, reported.fence)

    async def _end_batch(self, batch: Sequence[Reported]) -> Sequence[Accepted | None]:
        return await begun_anew(lambda: self._ended(batch))

    async def _ended(self, batch: Sequence[Reported]) -> Sequence[Accepted | None]:
        async with self._database.transaction() as connection:
            facts = await self._facts(connection, {(one.fence, one.worker_id) for one in batch})
            # Of two reports of one assignment the first one counts; the second one meets it as accepted.
            first = {one.fence: one for one in reversed(batch) if _is_its_own(one, facts)}
            held = [first[fence] for fence in sorted(first) if facts[fence].held]
            ended = await self._end(connection, held, facts) if held else {}
        return [self._accepted(reported, first, facts, ended) for reported in batch]

    async def _facts(
        self, connection: Connection, pairs: Collection[tuple[Fence, int]]
    ) -> dict[Fence, EndFacts]:
        facts = await self._database.run(assignments.end_facts(sorted(pairs)), connection)
        # Whoever waited for a lock has seen what was there before: these were ended meanwhile, elsewhere.
        stale = sorted(
            (fence, known.worker_id)
            for fence, known in facts.items()
            if not known.held and known.outcome is None
        )
        return facts | await self._database.run(assignments.end_facts(stale), connection) if stale else facts

    async def _end(
        self, connection: Connection, held: Sequence[Reported], facts: Mapping[Fence, EndFacts]
    ) -> dict[Fence, str]:
        """Decide and write the ends of what is held; the rows are locked."""
        finals: list[Ended] = []
        returned: list[Returned] = []
        outcomes: dict[Fence, str] = {}
        for reported in held:
            known = facts[reported.fence]
            decision = after_report(reported.end, _rule_facts(known), random.random)
            outcomes[reported.fence] = outcome_of(decision, cancel_requested=known.cancel_requested).value
            if isinstance(decision, PutBack):
                returned.append(Returned(reported.fence, decision, known.seconds, known.kind or ""))
            else:
                finals.append(Ended(reported.fence, decision, known.seconds, known.kind or ""))
        if finals:
            await self._database.run(attempts.finish_jobs(finals), connection)
        if returned:
            await self._database.run(attempts.put_back_jobs(returned), connection)
        if frees := {known.frees for one in held if (known := facts[one.fence]).frees is not None}:
            await self._database.run(announce_room(sorted(frees)), connection)
        notes = [Noted(one.fence, one.text, outcomes[one.fence], one.rung) for one in held]
        await self._database.run(assignments.note_ends(notes), connection)
        self._events.emit("assignments.ended", count=len(outcomes), outcomes=Counter(outcomes.values()))
        return outcomes

    def _accepted(
        self,
        reported: Reported,
        first: Mapping[Fence, Reported],
        facts: Mapping[Fence, EndFacts],
        ended: Mapping[Fence, str],
    ) -> Accepted | None:
        if not _is_its_own(reported, facts):
            return None
        known = facts[reported.fence]
        if reported.fence in ended:
            counted = first[reported.fence]
            same = counted.end.outcome is reported.end.outcome
            return Accepted(ended[reported.fence], counted is not reported) if same else None
        if known.report is None or known.outcome is None:
            return None
        former = msgspec.json.decode(known.report)
        return Accepted(known.outcome, True) if former.get("outcome") == reported.end.outcome else None


def _is_its_own(reported: Reported, facts: Mapping[Fence, EndFacts]) -> bool:
    """Read whether an assignment is the runner's that reports of it."""
    known = facts.get(reported.fence)
    return known is not None and known.worker_id == reported.worker_id


def _rule_facts(known: EndFacts) -> Facts:
    return Facts(
        failures=known.failures,
        max_attempts=known.max_attempts,
        cancel_requested=known.cancel_requested,
        backoff=stored_backoff(known.retry) or DEFAULT_BACKOFF,
    )


async def stale(database: Database, fence: Fence) -> AssignmentStale | JobNotFound:
    """Return the error that tells how a job really stands."""
    truth = await database.run(assignments.find_truth(fence))
    if truth is None:
        return JobNotFound(fence.job_id)
    return AssignmentStale(
        fence.job_id,
        fence.attempt,
        state=truth.state,
        now=truth.attempt,
        runner=truth.runner,
        outcome=truth.outcome,
    )
