"""How things stand while the demo runs: one look at the database and at the spools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from examples.forge import spool
from examples.forge.database import Connection

_LOOK = """
select (select count(*) from forge.push_events),
       (select count(*) from forge.push_events where processed_at is not null),
       (select count(*) from holdfast.job_overview j
        where j.state not in ('completed', 'failed', 'cancelled') and j.kind <> all (%(recurring)s)),
       (select count(*) from holdfast.workers w where w.state = 'online' and w.expires_at > now()),
       (select count(*) from forge.imports where status = 'requested')
       + (select count(*) from forge.import_repositories where status = 'found'),
       (select count(*) from forge.import_repositories where status <> 'found'),
       (select count(*) from forge.trending_snapshots)
"""
# Kinds that come back for ever: waiting until none is live would have no end.
RECURRING = ["trending:compute", "push:sweep", "jobs:purge_completed"]


@dataclass(frozen=True, slots=True)
class Standing:
    """Counts: *live* are jobs not ended yet, *spooled* pushes that wait on disk for a sweep."""

    spooled: int
    events: int
    processed: int
    live: int
    workers: int
    imports_open: int
    imports_done: int
    rankings: int

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.live or self.spooled or self.imports_open or self.events > self.processed)


def look(connection: Connection, root: Path) -> Standing:
    """Look how things stand."""
    # The spools first: what is swept between the two looks is then seen twice rather than not at all.
    spooled = sum(1 for _ in spool.kept(root))
    [row] = connection.execute(_LOOK, {"recurring": RECURRING}).fetchall()
    return Standing(spooled, *row)
