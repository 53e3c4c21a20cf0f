"""``push:process`` and ``push:sweep``: every push is processed once, whatever befell its hook."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import psycopg

import holdfast
from examples.forge import activities, git, pushes, repositories, spool
from examples.forge.forge import Forge
from examples.forge.kinds import size
from examples.forge.pushes import PushEvent


def register(forge: Forge) -> None:
    """Register both kinds and the schedule of the sweep."""

    @forge.app.job(kind=pushes.KIND, queue=pushes.QUEUE, retry=forge.retry, timeout=120)
    def process_push(job: holdfast.Job, event_id: int) -> None:
        with forge.connect() as connection:
            event = pushes.find(connection, event_id)
        if event is None:
            msg = f"push event {event_id} has vanished"
            raise holdfast.Poison(msg)
        path = repositories.place(forge.settings.root, event.owner, event.name)
        # What takes time comes before the transaction, what counts comes inside it.
        change = None if event.processed_at else look_at(event, path)
        with job.transaction() as connection:
            # Of all attempts that come here for one event, only one finds it unprocessed.
            if change is None or not pushes.mark_processed(connection, event.id):
                job.result = "processed before"
                return
            repositories.count_push(connection, event.repository_id)
            repositories.note_head(connection, event.repository_id, path)
            activities.add(connection, event, change, job)
            size.enqueue(forge, connection, event.repository_id)
            job.result = f"{event.ref} {change.what}, {change.commits} commits"

    @forge.app.job(kind="push:sweep", queue="chores", retry=forge.retry)
    def sweep(job: holdfast.Job) -> int:
        swept = 0
        for file in spool.kept(forge.settings.root):
            job.check()
            swept += _sweep_in(file, forge)
        return swept

    every = timedelta(seconds=forge.settings.sweep_every)
    forge.app.schedule("sweep the spools", sweep.job(), every=every, overlap="skip")


def look_at(event: PushEvent, path: Path) -> activities.Change:
    """Ask git what a push did to its ref."""
    if event.after == git.NOTHING:
        return activities.Change("deleted", 0)
    if event.before == git.NOTHING:
        return activities.Change("created", _count(path, event.after))
    is_forward = git.succeeds("merge-base", "--is-ancestor", event.before, event.after, folder=path)
    change = "updated" if is_forward else "forced"
    return activities.Change(change, _count(path, f"{event.before}..{event.after}"))


def _count(path: Path, commits: str) -> int:
    return int(git.run("rev-list", "--count", commits, folder=path))


def _sweep_in(file: Path, forge: Forge) -> int:
    try:
        push = pushes.push_from_json(file.read_text("utf-8"))
        with forge.connect() as connection:
            recorded = pushes.record(connection, push, spooled=True)
    except FileNotFoundError:
        # Another sweep was here first.
        return 0
    except (ValueError, TypeError, KeyError, psycopg.DataError, psycopg.IntegrityError):
        # Not a push, or one to a repository that is gone: it would be in the way for ever.
        spool.put_aside(file)
        return 0
    # A sweep that dies before this line leaves the file, and the next one finds its events recorded.
    file.unlink(missing_ok=True)
    return recorded
