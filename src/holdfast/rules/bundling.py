"""Whether a claim puts its jobs into bundles, by what became of those before it."""

from __future__ import annotations

# So many jobs of one claim are worth a bundle.
MANY = 64
# A bundle pays for itself while not more than one of so many jobs is taken out of it by its own worker.
WORTH = 8
# Where more are, this many claims are without bundles, then twice as many, up to the most.
FIRST_REST, LONGEST_REST = 16, 1024
# After this many jobs it is seen how many were taken out.
ENOUGH = 500


class Bundling:
    """Decides for each claim of a worker in turn.

    Bundles are not for claims that may bring few, nor after two that did: to decide about each job costs
    more than is saved then.  (One may be short because a line has come to its end, or a better one was looked
    for in vain.)  And they rest where many jobs are taken out of them again.
    """

    def __init__(self) -> None:
        self._claims_to_rest, self._rest = 0, FIRST_REST
        self._bundled, self._parted = 0, 0
        # How many jobs the last two claims have brought.
        self._brought = 0, 0

    def next_claim(self, limit: int) -> bool:
        """Decide about the next claim, of up to *limit* jobs."""
        if limit < MANY or max(self._brought) < MANY:
            return False
        if self._claims_to_rest > 0:
            self._claims_to_rest -= 1
            return False
        if self._bundled >= ENOUGH:
            self._look_back()
        return not self._claims_to_rest

    def _look_back(self) -> None:
        if self._parted * WORTH > self._bundled:
            self._claims_to_rest, self._rest = self._rest, min(LONGEST_REST, 2 * self._rest)
        else:
            self._rest = max(FIRST_REST, self._rest // 2)
        self._bundled, self._parted = 0, 0

    def claimed(self, jobs: int, bundled: int) -> None:
        """Note that a claim brought so many *jobs*, of them *bundled* in bundles."""
        self._brought = self._brought[1], jobs
        self._bundled += bundled

    def parted(self, jobs: int) -> None:
        """Note that so many jobs were taken out of their bundles by their own worker."""
        self._parted += jobs
