"""The fence: whatever writes for an attempt names it, and a stale attempt changes nothing.

`WRITES` lists every write path.  A block of SQL that compares the attempt of a live job, or the bit of one in
a bundle, which has no other attempt than the first, and is not listed here fails the first test: list it,
with a way to drive it.
"""

import re
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asyncpg import BitString

import holdfast
from holdfast.errors import LeaseLost
from holdfast.model.activity import ActivityNote
from holdfast.model.assignment import ArtifactLimits
from holdfast.model.job import NewJob
from holdfast.model.outcome import Complete, Fail, Outcome, PutBack, Stop, Suspend
from holdfast.model.step import StepKind, StepNote, StepState
from holdfast.store import (
    activities,
    artifacts,
    assignments,
    attempts,
    blobs,
    bundles,
    checkpoints,
    children,
    leases,
    log_chunks,
    logs,
    offers,
    runs,
    signals,
    steps,
    workers,
)
from holdfast.store.assignments import Life
from holdfast.store.attempts import Ended, Fence, Final, Returned
from holdfast.store.children import Place
from holdfast.store.log_chunks import Arrival, LogLimits, Piece, StreamKey
from holdfast.store.logs import LogLine
from holdfast.store.runs import Suspended
from holdfast.store.sessions import Sessions
from holdfast.store.signals import Waiter
from holdfast.store.sqlfile import blocks, rendered
from holdfast.store.statement import Statement
from holdfast.store.sync_sessions import SyncSessions
from holdfast.worker.transaction import Beside, LoopTransaction, SyncTransaction
from tests.contracts.test_sql import BLOCKS, body
from tests.store.scene import Scene, fence

Write = Callable[[Scene, Fence], Awaitable[Any]]
# Compares the attempt of a row in live_jobs, or the bit in a bundle, with what the caller says: the mark of a
# write path.
FENCED = re.compile(r"\bl\.attempt = |~e\.gone\b")
# What a handler writes in its own transaction.
INSERT = "insert into holdfast.queues (name) values ('mine')"


def stated(make: Callable[[Fence], Statement[Any]]) -> Write:
    """A write path that is one statement."""

    async def write(scene: Scene, stale: Fence) -> Any:
        return await scene.run(make(stale))

    return write


def ended(stale: Fence) -> Ended:
    """An end with nothing to say."""
    return Ended(stale, Complete(), 0.1)


def finish(decision: Final) -> Write:
    """End the job."""
    return stated(lambda stale: attempts.finish_jobs([Ended(stale, decision, 0.1)]))


def put_back(outcome: Outcome, delay: float, *, counts: bool) -> Write:
    """End the attempt; the job goes on."""
    decision = PutBack(outcome, delay, counts, "for a test", "with an error")
    return stated(lambda stale: attempts.put_back_jobs([Returned(stale, decision)]))


async def bundled(scene: Scene, one: Fence, *, gone: bool) -> None:
    """Have the job stand in a bundle, with another one; *gone* says that it has left."""
    await scene.db.fetch(
        "insert into holdfast.bundles (worker_id, queue, kind, priority, claimed_at, running, job_ids, gone) "
        "values (1, 'default', 'greet', 5, now(), 0, $1, $2)",
        [one.job_id, 2_000_000],
        BitString.from_int(2 if gone else 0, 2),
    )


async def complete_bundled(scene: Scene, stale: Fence) -> list[int]:
    """End the job by its bundle."""
    bundle = await scene.db.value("select min(id) from holdfast.bundles")
    return await scene.run(bundles.complete_bundled([((bundle, 2, 0), ended(stale))]))


def line(stale: Fence) -> LogLine:
    """A line that an attempt wrote."""
    return LogLine(stale, 0, datetime.now(UTC), "info", "still here")


def note(state: StepState = StepState.COMPLETED) -> StepNote:
    """A step of a run, with a line of its log."""
    return StepNote(
        branch="main",
        place=0,
        name="charge",
        kind=StepKind.STEP,
        state=state,
        tries=1,
        seconds=0.1,
        result="1",
        parameters="{}",
    )


def called() -> ActivityNote:
    """A line of the log of step calls."""
    return ActivityNote(
        step="charge",
        branch="main",
        place=0,
        tried=1,
        parameters="{}",
        result="1",
        error=None,
        ago=0.2,
        seconds=0.1,
    )


def started(stale: Fence) -> Statement[Any]:
    """The start of a child."""
    place = Place("main", 1, "greet", "child", "{}")
    return children.start_children(stale, place, [NewJob(kind="greet", args="{}")])


async def taken_signal(scene: Scene, stale: Fence) -> Any:
    """Take a signal, as one of those who look for theirs at the same time."""
    [found] = await scene.run(signals.take_signals([Waiter(stale, "main", 2, "go")]))
    return found


def taken(stale: Fence) -> Statement[Any]:
    """The end of a family without members, recorded at the place that `waits` made."""
    return children.take_children(stale, "main", 7, family=999, count=0, most=9)


async def waits(scene: Scene, run_id: int) -> None:
    """Let a run wait for a family at place 7, send it a signal, and open the logs of its first attempts."""
    await scene.db.fetch(
        "insert into holdfast.log_streams (job_id, attempt, stream, opened_at, written_at) "
        "select $1, n, 'stdout', holdfast.now(), holdfast.now() from generate_series(0, 3) n",
        run_id,
    )
    await scene.db.fetch(
        "insert into holdfast.signals (run_id, name, sent_at) values ($1, 'go', holdfast.now())", run_id
    )
    await scene.db.fetch(
        "insert into holdfast.steps (run_id, branch, place, name, kind, state, attempt) "
        "values ($1, 'main', 7, 'greet', 'children', 'running', 1)",
        run_id,
    )


async def stream_key(scene: Scene, stale: Fence) -> StreamKey:
    """A stream of the attempt, named by the worker that has the job, or had it."""
    holder = await scene.db.value(
        "select coalesce((select l.worker_id from holdfast.live_jobs l where l.job_id = $1), "
        "(select max(w.id) from holdfast.workers w), 1)",
        stale.job_id,
    )
    return StreamKey(stale, "stdout", holder)


async def sent(scene: Scene, stale: Fence) -> Any:
    """Bytes of a runner's log, which may not come after the end here."""
    limits = LogLimits(late_seconds=0)
    key = await stream_key(scene, stale)
    [answer] = await scene.run(log_chunks.append_chunks([Arrival(key, Piece(0, 3, b"abc"))], limits))
    return answer


async def closed(scene: Scene, stale: Fence) -> bool:
    """The end of a runner's log."""
    key = await stream_key(scene, stale)
    closing = log_chunks.close_stream(key, total=3, sha256=bytes(32), intact=True, late_seconds=0)
    return await scene.run(closing)


async def assigned(scene: Scene, attempt: Fence) -> None:
    """Let the attempt be one that a runner was offered, that holds the job, and that was not accepted."""
    await scene.db.fetch(
        "insert into holdfast.assignments (job_id, attempt, worker_id, term, offered_at, progressed_at) "
        "values ($1, $2, coalesce((select worker_id from holdfast.live_jobs where job_id = $1), 1), 1, "
        "holdfast.now(), holdfast.now())",
        *attempt,
    )
    await scene.db.fetch(
        "insert into holdfast.placements (job_id, spec_sha256) values ($1, '') on conflict do nothing",
        attempt.job_id,
    )
    await scene.db.fetch("update holdfast.workers set token_id = 1")


def by_runner(make: Callable[[Fence, int], Statement[Any]]) -> Write:
    """A write of a runner, which names itself as well: the one that holds the job now."""

    async def write(scene: Scene, stale: Fence) -> Any:
        find = "select worker_id from holdfast.live_jobs where job_id = $1"
        return await scene.run(make(stale, await scene.db.value(find, stale.job_id) or 1))

    return write


async def locked_end(scene: Scene, stale: Fence) -> bool:
    """The facts that decide an end, and the lock on what is held."""
    facts = await by_runner(lambda one, holder: assignments.end_facts([(one, holder)]))(scene, stale)
    return any(known.held for known in facts.values())


def life(stale: Fence, holder: int) -> Statement[Any]:
    """What a runner says of an assignment."""
    said = Life(fence=stale, worker_id=holder, term=1, number=1, running=True, progress=0.5, alive=True)
    return assignments.note_life([said])


async def loop_transaction(scene: Scene, stale: Fence) -> list[int]:
    """An async handler's own transaction, with a write of its own."""
    job: Any = SimpleNamespace(id=stale.job_id, attempt=stale.attempt, kind="greet", result=None)
    running: Any = SimpleNamespace(began=time.monotonic(), end=lambda _committed: None)
    async with AsyncExitStack() as stack:
        sessions = Sessions(scene.db.config, 1)
        stack.push_async_callback(sessions.close)

        async def nothing() -> None:
            return None

        try:
            async with LoopTransaction(job, running, sessions, open_up=nothing, settle=nothing) as connection:
                await scene.execute(
                    connection, "insert into holdfast.queues (name) values ('mine') returning 1"
                )
        except LeaseLost:
            return []
    return [stale.job_id]


async def sync_transaction(scene: Scene, stale: Fence) -> list[int]:
    """A sync handler's own transaction, with a write of its own."""
    job: Any = SimpleNamespace(id=stale.job_id, attempt=stale.attempt, kind="greet", result=None)
    worker = Beside(time.monotonic(), lambda: None, lambda: None, lambda _committed: None)
    with closing(SyncSessions(scene.db.config)) as sessions:
        try:
            with SyncTransaction(job, worker, sessions) as connection:
                connection.execute(rendered(INSERT, scene.db.schema).encode())
        except LeaseLost:
            return []
        return [stale.job_id]


# Block of SQL, what the write is, how it is driven.
WRITES: list[tuple[str, str, Write]] = [
    ("complete_jobs", "complete plainly", stated(lambda stale: attempts.complete_jobs([ended(stale)]))),
    ("complete_bundled", "complete in a bundle", complete_bundled),
    ("finish_jobs", "complete", finish(Complete('{"done": true}'))),
    ("finish_jobs", "fail", finish(Fail("trace", "it broke"))),
    ("finish_jobs", "cancel", finish(Stop("no longer wanted"))),
    ("complete_one", "async transaction", loop_transaction),
    ("complete_one", "sync transaction", sync_transaction),
    ("put_back_jobs", "retry at once", put_back(Outcome.RETRIED, 0, counts=True)),
    ("put_back_jobs", "retry later", put_back(Outcome.RETRIED, 60, counts=True)),
    ("put_back_jobs", "snooze", put_back(Outcome.SNOOZED, 60, counts=False)),
    ("put_back_jobs", "release", put_back(Outcome.RELEASED, 0, counts=False)),
    ("put_back_jobs", "suspend", put_back(Outcome.SUSPENDED, 0, counts=False)),
    ("start_jobs", "start", stated(lambda stale: attempts.start_jobs([(stale, 2.0)]))),
    ("report_progress", "progress", stated(lambda stale: attempts.report_progress(stale, 0.5, "half"))),
    ("append_logs", "log", stated(lambda stale: logs.append_logs([line(stale)]))),
    ("append_chunks", "log bytes", sent),
    ("close_stream", "end of log", closed),
    (
        "save_checkpoint",
        "checkpoint",
        stated(lambda stale: checkpoints.save_checkpoint(stale, 2, '{"n": 2}')),
    ),
    ("delete_checkpoint", "forget checkpoint", stated(checkpoints.delete_checkpoint)),
    ("save_steps", "step", stated(lambda stale: steps.save_steps([(stale, note())]))),
    (
        "append_activities",
        "activity",
        stated(lambda stale: activities.append_activities([(stale, called())])),
    ),
    ("renew_attempt", "renew", stated(leases.renew_attempt)),
    ("take_signals", "take signal", taken_signal),
    ("start_children", "start child", stated(started)),
    ("take_children", "take children", stated(taken)),
    ("save_blob", "blob", stated(lambda stale: blobs.save_blob(stale, b"data"))),
    ("suspend_runs", "sleep", stated(lambda stale: runs.suspend_runs([Suspended(stale, Suspend("a test"))]))),
    ("note_life", "runner's word", by_runner(life)),
    ("take_missing", "take from runner", by_runner(lambda one, by: assignments.take_missing([one], [by]))),
    ("end_facts", "lock for the end", locked_end),
    ("show_offers_again", "offer again", stated(lambda one: offers.show_offers_again([one], [b"x" * 32]))),
    ("read_spec", "spec", by_runner(assignments.read_spec)),
    (
        "store_artifact",
        "artifact",
        by_runner(
            lambda one, holder: artifacts.store_artifact(one, holder, "log.txt", b"data", ArtifactLimits())
        ),
    ),
    ("continue_run", "continue as new", stated(lambda stale: runs.continue_run(stale, "{}", "seed"))),
]
CHANGES_NOTHING = {"lock", "lock for the end", "spec"}
BEGINS = {"start", "offer again"}


async def older(scene: Scene) -> Fence:
    """The job was retried and another attempt runs."""
    first = fence(await scene.one())
    await put_back(Outcome.RETRIED, 0, counts=True)(scene, first)
    assert len(await scene.claim(await scene.worker())) == 1
    return first


async def younger(scene: Scene) -> Fence:
    """An attempt that no claim has handed out yet."""
    held = await scene.one()
    return Fence(held.id, held.attempt + 1)


async def released(scene: Scene) -> Fence:
    """The attempt was given back and nobody has claimed the job since."""
    first = fence(await scene.one())
    await put_back(Outcome.RELEASED, 0, counts=False)(scene, first)
    return first


async def rescued(scene: Scene) -> Fence:
    """The worker was declared lost and its job rescued."""
    worker = await scene.worker()
    first = fence(await scene.one(worker))
    await scene.lose(worker)
    await scene.run(workers.rescue_jobs(await scene.lead(), 10))
    return first


async def rescued_and_claimed(scene: Scene) -> Fence:
    """The job was rescued and runs again elsewhere."""
    stale = await rescued(scene)
    assert len(await scene.claim(await scene.worker())) == 1
    return stale


async def finished(scene: Scene) -> Fence:
    """The job has completed."""
    job = await scene.one()
    await scene.complete(job)
    return fence(job)


async def never_claimed(scene: Scene) -> Fence:
    """The job waits for its first claim."""
    (job_id,) = await scene.enqueue()
    return Fence(job_id, 0)


async def unknown(scene: Scene) -> Fence:
    """There is no such job."""
    await scene.enqueue()
    return Fence(999_999, 1)


STALE = [older, younger, released, rescued, rescued_and_claimed, finished, never_claimed, unknown]


# Blocks that change live_jobs for nobody's attempt, and why they may.
WITHOUT_FENCE = {
    "claim_announced": "makes the attempt",
    "claim_jobs": "makes the attempt",
    "stage_jobs": "scheduled jobs, which nobody holds",
    "offer_jobs": "makes the attempt",
    "unpin_jobs": "changes who may take a job next, whoever holds it",
    "discard_jobs": "jobs that nobody holds",
    "retry_jobs": "jobs that nobody holds",
    "fail_unknown": "available jobs, which nobody holds",
}


# The same for functions of the migrations, which blocks call.
FUNCTIONS = {
    "take_jobs": "makes the attempt",
    "enqueue_unique": "replaces what nobody holds yet",
    "place_job": "says who may take a job, whoever holds it",
    "unroute": "a job that is replaced asks anew for runners",
    "suspend_held": "the block that calls it has locked the rows under their fence",
    "revive_runs": "waiting runs, which nobody holds",
    "resume_held": "paused runs, which nobody holds",
    "take_away": "ends an attempt from outside: its callers have locked the rows of those who lost it",
    "pause_runs": "parks what nobody holds; the rest it only asks to park",
    "cancel_tree": "ends what nobody holds; the rest it only asks to stop",
}
MIGRATIONS = Path(holdfast.__file__).parent / "store" / "migrations"
FUNCTION = re.compile(r"create (?:or replace )?function holdfast\.(\w+)\(.*?as \$\$(.*?)\$\$;", re.DOTALL)
WRITING = re.compile(r"(?:update|delete from) holdfast\.live_jobs\b")


def test_every_function_that_writes_is_listed() -> None:
    """What a function changes of live_jobs it changes for nobody's attempt, and here stands why it may."""
    texts = [path.read_text() for path in sorted(MIGRATIONS.glob("*.sql"))]
    written = {name for text in texts for name, code in FUNCTION.findall(text) if WRITING.search(body(code))}
    assert written == FUNCTIONS.keys(), f"say why these may: {sorted(written ^ FUNCTIONS.keys())}"


def test_every_write_path_is_listed() -> None:
    """A block that names an attempt is driven below."""
    fenced = {name for noun, name in BLOCKS if FENCED.search(body(blocks(noun)[name]))}
    listed = {block for block, _, _ in WRITES}
    assert fenced - listed == set(), f"list these write paths here: {sorted(fenced - listed)}"
    assert listed - fenced == set(), f"these blocks have lost their fence: {sorted(listed - fenced)}"


def test_every_write_to_a_held_job_is_fenced() -> None:
    """What changes live_jobs names the attempt, or is listed with the reason why it need not."""
    found = {name for noun, name in BLOCKS if WRITING.search(body(blocks(noun)[name]))}
    loose = found - {block for block, _, _ in WRITES}
    assert loose == WITHOUT_FENCE.keys(), (
        f"fence these or say why not: {sorted(loose ^ WITHOUT_FENCE.keys())}"
    )


@pytest.mark.parametrize("situation", STALE, ids=lambda situation: str(situation.__name__))
async def test_a_stale_attempt_changes_nothing(
    scene: Scene, situation: Callable[[Scene], Awaitable[Fence]]
) -> None:
    """Every write is refused, and not one row of any table differs afterwards."""
    stale = await situation(scene)
    await scene.db.fetch(
        "insert into holdfast.checkpoints (job_id, attempt, version, data, saved_at) "
        "values ($1, 1, 1, '{}', holdfast.now())",
        stale.job_id,
    )
    await waits(scene, stale.job_id)
    await assigned(scene, stale)
    await bundled(scene, stale, gone=True)
    before = await scene.dump()
    for block, what, write in WRITES:
        assert not await write(scene, stale), f"{what} ({block}) was accepted"
        assert await scene.dump() == before, f"{what} ({block}) changed something"


@pytest.mark.parametrize(("block", "what", "write"), WRITES, ids=[what for _, what, _ in WRITES])
async def test_the_attempt_that_holds_the_lease_may_write(
    scene: Scene, block: str, what: str, write: Write
) -> None:
    """The same writes are accepted from the holder: what refuses the stale is the fence and nothing else."""
    await scene.enqueue()
    (job,) = await scene.claim(await scene.worker(), limit=1, free=0 if what in BEGINS else 1)
    await scene.run(checkpoints.save_checkpoint(fence(job), 1, "{}"))
    await waits(scene, job.id)
    await assigned(scene, fence(job))
    await bundled(scene, fence(job), gone=False)
    before = await scene.dump()
    assert await write(scene, fence(job)), f"{what} ({block}) was refused"
    assert (await scene.dump() == before) is (what in CHANGES_NOTHING)


@pytest.mark.parametrize("write", [attempts.finish_jobs, attempts.complete_jobs])
async def test_a_stale_attempt_in_a_batch_does_not_hold_up_the_others(scene: Scene, write: Any) -> None:
    """Of a mixed batch the held attempts are written and answered, the stale ones neither."""
    worker = await scene.worker()
    await scene.enqueue(4)
    jobs = await scene.claim(worker)
    await scene.complete(jobs[1])
    stale = Fence(jobs[2].id, jobs[2].attempt + 1)
    batch = [ended(one) for one in (fence(jobs[0]), fence(jobs[1]), stale, fence(jobs[3]))]
    accepted = await scene.run(write(batch))
    assert sorted(accepted) == [jobs[0].id, jobs[3].id]
    assert (await scene.states())[jobs[2].id] == "running"
