"""Several jobs of a concurrency key, claimed at once: who gets them, where they stand, how they are told."""

import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.model.job import ClaimedJob, Tie
from holdfast.model.outcome import Complete
from holdfast.store import attempts, bundles, overview
from holdfast.store.attempts import Demand, Ended, Turn
from tests.store.scene import KIND, Scene, fence
from tests.store.test_limits import READ, limit

INTERVALS = """
    select j.id, f.claimed_at, f.started_at, f.finished_at from holdfast.finished_jobs f
    join holdfast.jobs j on j.id = f.job_id order by j.id
"""


async def enqueue(scene: Scene, *keys: str, **options: Any) -> list[int]:
    """One job of each key, in this order."""
    return [(await scene.enqueue(concurrency_key=key, **options))[0] for key in keys]


async def claim(
    scene: Scene,
    worker: int,
    *,
    wanted: int = 10,
    kinds: tuple[str, ...] = (),
    **options: Any,
) -> list[ClaimedJob]:
    """Claim up to four jobs of a key, into bundles those of *kinds*."""
    options = {"free": wanted, "in_a_row": 4} | options
    demand = Demand(worker_id=worker, queues=("default",), kinds=(KIND,), limit=wanted, **options)
    return await scene.run(attempts.claim_limited(demand, kinds))


def tie(job: ClaimedJob) -> Tie:
    """Where it stands in its bundle."""
    assert job.tie is not None
    return job.tie


def shown(claimed: list[ClaimedJob]) -> list[tuple[int, str | None, bool]]:
    """What a worker has to know of each."""
    return [(job.id, job.key, job.ahead) for job in claimed]


@pytest.mark.parametrize("kinds", [(), (KIND,)])
async def test_the_first_of_each_key_leads_and_the_others_are_ahead(
    scene: Scene, kinds: tuple[str, ...]
) -> None:
    """Best first, up to so many of a key; the first run, and nobody else gets one of these keys."""
    worker, other = await scene.worker(), await scene.worker()
    await enqueue(scene, *"aabaabab")
    claimed = await claim(scene, worker, kinds=kinds)
    assert sorted(shown(claimed)) == [
        (1, "a", False),
        (2, "a", True),
        (3, "b", False),
        (4, "a", True),
        (5, "a", True),
        (6, "b", True),
        (8, "b", True),
    ]
    assert {job.id for job in claimed if job.started} == {1, 3}
    assert all((job.tie is not None) == bool(kinds) for job in claimed)
    standing = "select job_id, state, in_turn from holdfast.unfinished_jobs where worker_id is not null"
    assert sorted(await scene.db.fetch(standing)) == sorted(
        (job.id, "running" if job.started else "claimed", job.ahead) for job in claimed
    )
    assert await scene.claim_limited(other) == []
    [told] = (await scene.run(overview.job_standings([7], 10))).values()
    assert told.key_running == 1


async def test_what_leaves_a_bundle_is_ahead_as_before(scene: Scene) -> None:
    """Its row says so, and only the first was running."""
    worker = await scene.worker()
    ids = await enqueue(scene, *"aaa")
    await claim(scene, worker, kinds=(KIND,))
    untied = await scene.run(bundles.untie_jobs(ids))
    assert sorted(untied) == ids
    rows = "select job_id, state, in_turn from holdfast.live_jobs order by 1"
    assert await scene.db.fetch(rows) == [
        (1, "running", False),
        (2, "claimed", True),
        (3, "claimed", True),
    ]


async def test_a_claim_brings_no_more_than_there_is_room_for(scene: Scene) -> None:
    """Each key gets its share of what the others leave; without room there are the first ones alone."""
    worker = await scene.worker()
    await enqueue(scene, *"aaaaabbbbb")
    assert [job.id for job in await claim(scene, worker, wanted=2)] == [1, 6]
    await scene.db.fetch("update holdfast.live_jobs set state = 'available', worker_id = null, attempt = 0")
    assert sorted(job.id for job in await claim(scene, worker, wanted=2, more=5)) == [1, 2, 3, 6, 7, 8]


async def test_nothing_is_ahead_of_its_key_where_more_than_one_may_run(scene: Scene) -> None:
    """Nor in a queue that limits all of its jobs."""
    worker = await scene.worker()
    await enqueue(scene, *"aaaa")
    await limit(scene, key_limit=2)
    assert shown(await claim(scene, worker)) == [(1, None, False), (2, None, False)]
    await limit(scene, key_limit=1, max_running=9)
    await enqueue(scene, *"bbbb")
    assert shown(await claim(scene, worker)) == [(5, None, False)]


async def test_where_keys_come_in_turn_nobody_is_passed_over(scene: Scene) -> None:
    """Jobs far behind do not come before others that are in the front of the line."""
    worker = await scene.worker()
    keys = [str(n) for n in range(80)]
    await enqueue(scene, *keys, *keys)
    claimed = await claim(scene, worker, wanted=10, more=100)
    assert shown(claimed) == [(1 + n, None, False) for n in range(10)]


async def test_the_backlog_of_a_key_is_read_no_further_than_it_is_claimed(scene: Scene) -> None:
    """However long it is, and of whatever kind: others may have much to do for the same keys."""
    for key in "ab":
        await scene.enqueue(2, concurrency_key=key)
        await scene.enqueue(3000, concurrency_key=key, kind="strange")
        await scene.enqueue(1000, concurrency_key=key, priority=7)
    await scene.db.fetch("analyze")
    session = await scene.session()
    async with session.transaction():
        text = "select holdfast.keyed_followers('default', $1::text[], array[1, 4003], 9000, 10)"
        found = await scene.execute(session, text, [KIND])
        scans, read = await session.fetchrow(READ, scene.db.schema) or (None, None)
    assert found == [2, 4004]
    assert scans == 0
    assert read is not None
    assert read < 100


@pytest.mark.parametrize(
    "becomes", ["kind = 'strange'", "route_id = 1", "queue = 'q'", "concurrency_key = 'b'", "priority = 9"]
)
async def test_a_follower_that_is_replaced_while_it_is_chosen_is_looked_at_again(
    scene: Scene, becomes: str
) -> None:
    """It may have become one for others, or one of a key that others have."""
    await enqueue(scene, *"aaab")
    text = await scene.db.value(
        "select prosrc from pg_proc where oid = $1::regproc", f'"{scene.db.schema}".keyed_followers'
    )
    for number, literal in enumerate(("'default'", f"array['{KIND}']", "array[1, 4]", "9000", "10"), start=1):
        text = text.replace(f"${number}", literal)
    session = await scene.session()
    async with session.transaction():
        # It reads what was there when it was declared, and locks what is there when it is fetched.
        await session.execute(f"declare followers cursor for {text}")
        await scene.db.fetch(f"update holdfast.live_jobs set {becomes} where job_id = 2")  # noqa: S608 - from the parameters above
        assert await session.fetchval("fetch followers") == [3]


async def test_followers_are_of_the_priority_of_the_first(scene: Scene) -> None:
    """Whatever is less urgent has to stand its turn among all others."""
    worker = await scene.worker()
    await enqueue(scene, *"aa", priority=2)
    await enqueue(scene, *"aa", priority=1)
    assert [job.id for job in await claim(scene, worker)] == [3, 4]


async def test_a_worker_may_take_what_is_urgent_of_a_key_of_its_own(scene: Scene) -> None:
    """It begins one after the other; what others hold stays theirs, whatever it names."""
    worker, other = await scene.worker(), await scene.worker()
    await enqueue(scene, *"aaab")
    await claim(scene, worker, in_a_row=3)
    [urgent, _] = await enqueue(scene, "a", "a", priority=3)
    assert await claim(scene, worker) == []
    assert await claim(scene, worker, own=[("a", 3)]) == []
    assert await claim(scene, other, own=[("a", 5)]) == []
    assert shown(await claim(scene, worker, own=[("b", 5), ("a", 5)])) == [(urgent, "a", True)]
    [free] = await enqueue(scene, "c", priority=3)
    # Its last job here may have ended as the claim was on its way: then it is the first again.
    assert shown(await claim(scene, worker, in_a_row=0, own=[("c", 5)])) == [(free, None, False)]


async def test_the_ends_of_a_sequence_do_not_overlap_whenever_they_are_written(scene: Scene) -> None:
    """One began as soon as the one before it had ended, before that was written; each ran a moment."""
    worker = await scene.worker()
    await enqueue(scene, *"aaaa")
    claimed = await claim(scene, worker, kinds=(KIND,))
    begun = time.monotonic()
    moments = [begun + 0.002 * n for n in range(5)]
    for nth, size in ((0, 2), (2, 1), (3, 1)):
        now = moments[nth + size]
        while time.monotonic() < now:
            pass
        ended = [
            (
                tie(claimed[n]),
                Ended(
                    fence(claimed[n]),
                    Complete(None),
                    0.002,
                    at=moments[n + 1],
                    turn=Turn(moments[n], n > 0, 0.0),
                ),
            )
            for n in range(nth, nth + size)
        ]
        written = await scene.run(bundles.complete_bundled(ended))
        assert len(written) == size
    history = await scene.db.fetch(INTERVALS)
    assert len(history) == 4
    for nth, (_, claimed_at, started_at, finished_at) in enumerate(history):
        # Who followed was claimed, as far as limits go, when its turn came.
        assert (claimed_at == started_at) == (nth > 0)
        assert 0.0 <= (finished_at - started_at).total_seconds() <= 0.0021
    for (*_, ended_at), (_, claimed_at, *_) in pairwise(history):
        assert ended_at <= claimed_at


async def test_a_batch_that_came_later_than_the_next_one_does_not_overlap_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told by when it came; whatever is told after it, is told as late."""
    worker = await scene.worker()
    await enqueue(scene, *"aaa")
    claimed = await claim(scene, worker, kinds=(KIND,))
    begun = time.monotonic()
    while time.monotonic() < begun + 0.04:
        pass
    for nth, (job, late) in enumerate(zip(claimed, (0.01, 0.0, 0.005), strict=True)):
        clock = SimpleNamespace(monotonic=lambda late=late: time.monotonic() - late)
        monkeypatch.setattr(bundles, "time", clock)
        turn = Turn(begun + 0.01 * nth, nth > 0, 0.0)
        end = Ended(fence(job), Complete(None), 0.01, at=begun + 0.01 * (nth + 1), turn=turn)
        await scene.run(bundles.complete_bundled([(tie(job), end)]))
    history = await scene.db.fetch(INTERVALS)
    for (*_, ended_at), (_, claimed_at, *_) in pairwise(history):
        assert ended_at <= claimed_at


async def test_no_end_is_told_to_be_longer_ago_than_deliveries_wait(scene: Scene) -> None:
    """They may have looked by then; the order is kept all the same."""
    worker = await scene.worker()
    await enqueue(scene, *"aaa")
    claimed = await claim(scene, worker, kinds=(KIND,))
    await scene.db.fetch("update holdfast.bundles set claimed_at = claimed_at - interval '1 hour'")
    now = time.monotonic()
    times = [(now - 50.0, now - 40.0), (now - 40.0, now - 30.0), (now - 30.0, now)]
    ended = [
        (tie(job), Ended(fence(job), Complete(None), 10.0, at=end, turn=Turn(begin, n > 0, 0.0)))
        for n, (job, (begin, end)) in enumerate(zip(claimed, times, strict=True))
    ]
    before = await scene.db.value("select clock_timestamp()")
    await scene.run(bundles.complete_bundled(ended))
    history = await scene.db.fetch(INTERVALS)
    for _, _, _, finished_at in history:
        assert (before - finished_at).total_seconds() <= 0.05
    for (*_, ended_at), (_, _, started_at, _) in pairwise(history):
        assert ended_at <= started_at


async def test_a_row_that_followed_is_told_from_its_own_beginning(scene: Scene) -> None:
    """By each statement that may end it: what was claimed at once did not run at once."""
    worker = await scene.worker()
    await enqueue(scene, *"aaaa")
    claimed = await claim(scene, worker)
    await scene.db.fetch("update holdfast.live_jobs set claimed_at = claimed_at - interval '1 minute'")
    ended = [Ended(fence(job), Complete(None), 1.0) for job in claimed]
    await scene.run(attempts.complete_jobs(ended[:2]))
    await scene.run(attempts.finish_jobs(ended[2:3]))
    await scene.run(attempts.complete_one(fence(claimed[3]), None, 1.0))
    for nth, (_, claimed_at, started_at, finished_at) in enumerate(await scene.db.fetch(INTERVALS)):
        assert (finished_at - started_at).total_seconds() == pytest.approx(1.0)
        assert (claimed_at == started_at) == (nth > 0)
