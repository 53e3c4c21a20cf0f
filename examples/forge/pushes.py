"""Pushes: what the hook hands in, and its events as rows.

The hook starts anew for every push, so this module imports no more than it needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from examples.forge.database import Connection

KIND = "push:process"
QUEUE = "pushes"


@dataclass(frozen=True, slots=True)
class RefUpdate:
    """One line of what git tells the hook: a ref, and where it pointed before and after."""

    before: str
    after: str
    ref: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """One push with all its refs; *id* is made once, however often the push is handed in."""

    id: str
    repository_id: int
    pusher: str
    pushed_at: datetime
    updates: tuple[RefUpdate, ...]

    def to_json(self) -> str:
        """Return the push as text for the spool."""
        return json.dumps(asdict(self) | {"pushed_at": self.pushed_at.isoformat()})


@dataclass(frozen=True, slots=True)
class PushEvent:
    """One ref of one push, as stored."""

    id: int
    repository_id: int
    owner: str
    name: str
    pusher: str
    ref: str
    before: str
    after: str
    processed_at: datetime | None


def push_from_json(text: str) -> Push:
    """Read a push from the spool; raises ValueError, TypeError or KeyError where it is none."""
    stored: dict[str, Any] = json.loads(text)
    updates = tuple(RefUpdate(**update) for update in stored.pop("updates"))
    return Push(**stored | {"pushed_at": datetime.fromisoformat(stored["pushed_at"]), "updates": updates})


def updates_from(lines: Iterable[str]) -> tuple[RefUpdate, ...]:
    """Read what git writes to a post-receive hook: ``before after ref``, a line for each ref."""
    return tuple(RefUpdate(*line.split(" ", 2)) for line in lines if line)


# One statement, so one transaction: an event never exists without its job, nor a job without its event.
# An event that is there already makes no second job.
_RECORD = """
with event as (
    insert into forge.push_events
        (push_id, repository_id, pusher, pushed_at, spooled, before_sha, after_sha, ref)
    select %(id)s::uuid, %(repository_id)s, %(pusher)s, %(pushed_at)s, %(spooled)s, u.before, u.after, u.ref
    from unnest(%(befores)s::text[], %(afters)s::text[], %(refs)s::text[]) as u (before, after, ref)
    on conflict (push_id, ref) do nothing
    returning id
)
select holdfast.enqueue(%(kind)s, jsonb_build_object('event_id', event.id), queue => %(queue)s) from event
"""


def record(connection: Connection, push: Push, *, spooled: bool = False) -> int:
    """Write the events of *push* and one job for each; answers how many were new."""
    parameters = {
        "kind": KIND,
        "queue": QUEUE,
        "id": push.id,
        "repository_id": push.repository_id,
        "pusher": push.pusher,
        "pushed_at": push.pushed_at,
        "spooled": spooled,
        "befores": [update.before for update in push.updates],
        "afters": [update.after for update in push.updates],
        "refs": [update.ref for update in push.updates],
    }
    return len(connection.execute(_RECORD, parameters).fetchall())


def find(connection: Connection, event_id: int) -> PushEvent | None:
    """Return a push event, or None if it has vanished."""
    row = connection.execute(
        "select e.id, r.id, r.owner, r.name, e.pusher, e.ref, e.before_sha, e.after_sha, e.processed_at "
        "from forge.push_events e join forge.repositories r on r.id = e.repository_id where e.id = %s",
        [event_id],
    ).fetchone()
    return None if row is None else PushEvent(*row)


def mark_processed(connection: Connection, event_id: int) -> bool:
    """Mark an event as processed; False if somebody has done so before, and then nothing may follow."""
    marked = connection.execute(
        "update forge.push_events set processed_at = clock_timestamp() "
        "where id = %s and processed_at is null returning id",
        [event_id],
    )
    return marked.fetchone() is not None
