"""What a worker may hold without knowing it: the answer of a claim was lost on its way."""

from __future__ import annotations

import math
import time

from holdfast.store import attempts
from holdfast.store.database import Database
from holdfast.worker.bundles import Bundles
from holdfast.worker.reporter import Reporter
from holdfast.worker.running import Held

# How often what is held is compared with the database, in seconds, for so long after an answer was lost: the
# server may go on with a claim, and write it, long after its connection broke here.  And how often else: the
# comparison walks over all that the worker did since dead rows were last removed.
EVERY, DOUBT_LASTS = 10.0, 600.0
SELDOM = 300.0


class Strays:
    """Finds jobs that the database says a worker holds, and that it does not know of, and gives them back.

    Hold it around each claim, by `with`.
    """

    def __init__(self, database: Database, held: Held, bundles: Bundles, reporter: Reporter) -> None:
        self._database, self._held, self._bundles, self._reporter = database, held, bundles, reporter
        self._in_doubt, self._doubted_at, self._looked_at = False, -math.inf, time.monotonic()

    def __enter__(self) -> None:
        """Begin a claim: where it does not end well, its answer is lost."""
        self._in_doubt = True

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """End a claim."""
        self._in_doubt = kind is not None

    @property
    def are_due(self) -> bool:
        """True when it is time to look, so at once after a claim that has not ended well."""
        now = time.monotonic()
        every = EVERY if now - self._doubted_at < DOUBT_LASTS else SELDOM
        return self._in_doubt or now - self._looked_at > every

    async def release(self, worker_id: int) -> None:
        """Look, and give back what is found."""
        if self._in_doubt:
            self._doubted_at = time.monotonic()
        # What is reported while the database answers is dropped by then, but was never strange to us.
        known = frozenset(self._held.fences)
        await self._bundles.untie_unknown(worker_id, known)
        found = await self._database.run(attempts.held_attempts(worker_id))
        if stray := [fence for fence in found if fence not in known]:
            self._held.take(stray)
            self._reporter.release(stray, "the answer of the claim was lost")
        self._in_doubt, self._looked_at = False, time.monotonic()
