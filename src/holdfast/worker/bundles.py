"""Which attempts of a worker stand in bundles, and how they leave them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from holdfast.model.job import ClaimedJob, Tie
from holdfast.model.outcome import Complete
from holdfast.rules.bundling import Bundling
from holdfast.store import bundles
from holdfast.store.attempts import Demand, Ended, Fence
from holdfast.store.database import Database

# Kinds of Holdfast's own: their ends are looked for in live_jobs.
_OWN = "holdfast:"


class Bundles:
    """What this worker knows of its bundles; the database has the last word.

    Of a job in a bundle nothing can be written but that it is completed.  Whoever writes anything else of an
    attempt has to `untie` it first.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ties = dict[int, Tie]()
        self._bundling = Bundling()
        self.kinds = tuple[str, ...]()

    def begin(self, kinds: Iterable[str], runs: Collection[str]) -> None:
        """Bundle jobs of these kinds from now on, but for *runs*: each of their steps writes."""
        self.kinds = tuple(kind for kind in kinds if kind not in runs and not kind.startswith(_OWN))

    @property
    def in_use(self) -> bool:
        """True while this worker has jobs in bundles."""
        return bool(self._ties)

    def kinds_for(self, demand: Demand) -> tuple[str, ...]:
        """Return the kinds whose jobs the next claim, of this *demand*, is to put into bundles."""
        return self.kinds if self._bundling.next_claim(demand.limit) else ()

    def took(self, claimed: Sequence[ClaimedJob]) -> None:
        """Remember where the jobs of a claim stand."""
        ties = {job.id: job.tie for job in claimed if job.tie is not None}
        self._ties.update(ties)
        self._bundling.claimed(len(claimed), len(ties))

    def share(self, one: int, other: int) -> bool:
        """Whether these two jobs stand in the same bundle."""
        tie = self._ties.get(one)
        return tie is not None and tie[0] == self._ties.get(other, (0,))[0]

    def divide(self, batch: list[Ended]) -> tuple[list[tuple[Tie, Ended]], list[Ended]]:
        """Return those that `complete` can end, and the others."""
        if not self._ties:
            return [], batch
        bundled, others, find = list[tuple[Tie, Ended]](), list[Ended](), self._ties.get
        for one in batch:
            tie = find(one.fence[0])
            # Who hands a permit on has to write that too.
            if tie is None or type(one.decision) is not Complete or one.heir is not None:
                others.append(one)
            else:
                bundled.append((tie, one))
        return bundled, others

    async def complete(self, bundled: Sequence[tuple[Tie, Ended]]) -> list[int]:
        """End attempts that are completed; answers whose end was written.

        Any other is not in its bundle any more: its end was recorded before, or somebody has taken it out.
        """
        ended = await self._database.run_read_committed(bundles.complete_bundled(bundled))
        self._drop([one.fence[0] for _, one in bundled])
        return ended

    async def untie(self, fences: Iterable[Fence]) -> None:
        """Give attempts rows of their own, wherever they are in bundles still."""
        if not self._ties:
            return
        job_ids = [job_id for job_id, _ in fences if job_id in self._ties]
        if not job_ids:
            return
        known = {self._ties[job_id][0] for job_id in job_ids}
        await self._database.run_read_committed(bundles.untie_known(known, job_ids))
        self._bundling.parted(len(job_ids))
        self._drop(job_ids)

    async def untie_unknown(self, worker_id: int, known: Collection[Fence]) -> None:
        """Give rows of their own to jobs that a claim has bundled whose answer was lost."""
        job_ids = [job_id for job_id, _ in known]
        await self._database.run_read_committed(bundles.untie_unknown(worker_id, job_ids))

    def forget(self) -> None:
        """Know of nothing: all of it belongs to others now."""
        self._ties.clear()

    def _drop(self, job_ids: Iterable[int]) -> None:
        for job_id in job_ids:
            self._ties.pop(job_id, None)
