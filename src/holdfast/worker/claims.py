"""Claims by one worker row from queues without limits, which begin at its remembered places."""

from __future__ import annotations

import time
from dataclasses import replace

from holdfast.errors import DatabaseUnavailable
from holdfast.model.job import ClaimedJob
from holdfast.rules.marks import Marks, Places
from holdfast.rules.rounds import Rounds
from holdfast.store import attempts, workers
from holdfast.store.attempts import Demand
from holdfast.store.database import Database
from holdfast.store.statement import Statement
from holdfast.worker.bundles import Bundles

# How often what was found out is noted for those who come later, in seconds.
NOTE_EVERY = 10.0
# How often a claim starts from where nothing can have been passed over, in seconds, while looks are quick.
LOOK_BEHIND = 0.5


class Claims:
    """What a worker remembers from one claim to the next, and from those before it.

    A claim begins at the tips, in a hurry, or at the settled places, where nothing can have been passed over;
    `rules.marks` and `rules.rounds` say why.  One in a hurry leaves every row that bears the mark of a lock.
    """

    def __init__(self, database: Database, bundles: Bundles) -> None:
        self._database, self._bundles = database, bundles
        self._rounds, self._noted_at = Rounds(), time.monotonic()
        self._looked_at, self._look_pause = 0.0, LOOK_BEHIND
        self._lost = database.lost
        self._forget()

    def _forget(self) -> None:
        """Trust nothing but what the database says next."""
        self._marks, self._recalled, self._begins_at_settled = Marks(), False, True
        self._hurries, self._hurry_came_short = True, False
        self._server: float | None = None

    @property
    def proven(self) -> dict[str, Places] | None:
        """What is to be noted for those who come later; None: nothing that holds."""
        return (self._marks.proven or None) if self._recalled else None

    async def plain(self, demand: Demand, below: int | None = None) -> list[ClaimedJob]:
        """Claim from queues without limits, starting where the last claim stopped.

        With *below* only what is of a better priority than that, from where nothing was passed over.
        """
        lost = self._database.lost
        if lost != self._lost:
            self._forget()
        try:
            claimed = await (self._plain(demand) if below is None else self._better(demand, below))
        except DatabaseUnavailable:
            # It may come back as it was a moment earlier, a standby even more so.
            self._forget()
            raise
        self._lost = lost
        if not claimed and self._database.lost != lost:
            # A connection in the pool was dead: who answered may know nothing of what was remembered.
            return await self.plain(demand, below)
        return claimed

    async def _plain(self, demand: Demand) -> list[ClaimedJob]:
        at_settled = await self._look(demand) or self._begins_at_settled
        if not self._recalled:
            noted = await self._database.run(workers.find_settled(demand.kinds))
            self._marks = Marks(noted)
            self._recalled = True
        if not at_settled:
            hurried = self._hurries
            claimed = await self._from_tips(demand)
            self._answered(is_short=len(claimed) < demand.limit, hurried=hurried)
            if claimed or not hurried:
                return claimed
        found = await self._from_settled(demand)
        self._answered(is_short=len(found) < demand.limit, hurried=False)
        return found

    def _answered(self, *, is_short: bool, hurried: bool) -> None:
        self._begins_at_settled = is_short
        if hurried:
            self._hurry_came_short = is_short
            return
        if is_short:
            self._hurries = True
        elif self._hurry_came_short:
            # Much was passed over that could be had: each claim in a hurry would walk over all of it.
            self._hurries = False
        self._hurry_came_short = False

    async def _from_tips(self, demand: Demand) -> list[ClaimedJob]:
        queues = self._rounds.asked(demand.queues, time.monotonic(), every_one=False)
        after = self._marks.tips(queues)
        return await self._claim(replace(demand, queues=queues, after=after, hurried=self._hurries))

    async def _from_settled(self, demand: Demand) -> list[ClaimedJob]:
        queues = self._rounds.asked(demand.queues, time.monotonic(), every_one=True)
        return await self._claim(replace(demand, queues=queues, after=self._marks.settled(queues)))

    async def _claim(self, demand: Demand) -> list[ClaimedJob]:
        claimed = await self._take(demand)
        self._rounds.answered(
            demand.queues, {job.queue for job in claimed}, full=len(claimed) == demand.limit
        )
        return claimed

    async def _better(self, demand: Demand, below: int) -> list[ClaimedJob]:
        return await self._take(replace(demand, after=self._marks.settled_above(below, demand.queues)))

    async def _take(self, demand: Demand) -> list[ClaimedJob]:
        kinds = self._bundles.kinds_for(demand)
        return await self.run(attempts.claim_bundled(demand, kinds) if kinds else attempts.claim_jobs(demand))

    async def run(self, claim: Statement[list[ClaimedJob]]) -> list[ClaimedJob]:
        """Claim from queues without limits, and remember the places of what was claimed."""
        claimed = await self._database.run(claim)
        for job in claimed:
            self._marks.taken(job.queue, job.priority, job.place)
        return claimed

    async def _look(self, demand: Demand) -> bool:
        """Find out now and then from where nothing can be missed; answers whether to claim from there."""
        begun, took = time.monotonic(), 0.0
        if begun - self._looked_at < self._look_pause:
            return False
        # Behind a pooler nobody sees whether the server is still the same: it is asked.
        if self._marks.in_doubt or self._database.config.pgbouncer:
            queues = demand.queues
            settled, candidate = self._marks.settled(queues), self._marks.candidate(queues)
            look = attempts.find_leftovers(queues, demand.kinds, settled, candidate)
            horizon = await self._database.run(look)
            if self._server not in (None, horizon.server):
                self._forget()
                return True
            self._server, took = horizon.server, horizon.took
            self._marks.look(queues, horizon)
            if begun - self._noted_at > NOTE_EVERY and (places := self.proven):
                await self._database.run(workers.note_settled(demand.worker_id, places))
                self._noted_at = begun
        self._looked_at = time.monotonic()
        # What a look costs the server goes with what is dead behind the tips: it may take a twentieth of the
        # time.  By our own clock a busy loop would count as well, and a job be passed over for too long.
        self._look_pause = max(LOOK_BEHIND, 20 * took)
        return True
