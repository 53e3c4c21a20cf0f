"""Matching: who gets what, held against a plain statement of the rules."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from holdfast.rules.matching import Candidate, Taker, fits, match

LABELS = st.frozensets(st.sampled_from(["linux", "gpu", "arm"]))
QUEUES = ["builds", "tests"]
CANDIDATES = st.lists(
    st.builds(
        Candidate,
        job_id=st.integers(1, 40),
        queue=st.sampled_from(QUEUES),
        kind=st.just("command"),
        priority=st.integers(0, 2),
        place=st.integers(-20, 20),
        labels=LABELS,
        runner=st.none() | st.sampled_from(["r1", "r2"]),
    ),
    max_size=30,
    unique_by=lambda job: job.job_id,
)


@st.composite
def takers(draw: st.DrawFn) -> list[Taker]:
    """Some runners of different shapes."""
    return [
        Taker(
            worker_id=number,
            name=f"r{number}",
            labels=draw(LABELS),
            kinds=frozenset({"command"}),
            queues=draw(st.frozensets(st.sampled_from(QUEUES), min_size=1)),
            free=draw(st.integers(0, 3)),
            left=draw(st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 2))),
        )
        for number in range(1, draw(st.integers(1, 6)))
    ]


@given(CANDIDATES, takers(), st.none() | st.integers(0, 10))
def test_nobody_gets_more_or_other_than_allowed(
    jobs: list[Candidate], runners: list[Taker], room: int | None
) -> None:
    """Labels, queue and pin fit; slots, capacity and room are never exceeded; no job goes twice."""
    before = {one.worker_id: (one.free, dict(one.left)) for one in runners}
    pairs = match(jobs, runners, room)
    assert len({job.job_id for job, _ in pairs}) == len(pairs)
    assert room is None or len(pairs) <= room
    assert all(fits(job, taker) for job, taker in pairs)
    for worker_id, count in Counter(taker.worker_id for _, taker in pairs).items():
        assert count <= before[worker_id][0]
    for (worker_id, queue), count in Counter((taker.worker_id, job.queue) for job, taker in pairs).items():
        assert count <= before[worker_id][1].get(queue, count)


@given(CANDIDATES, takers())
def test_no_job_waits_beside_a_runner_that_could_take_it(jobs: list[Candidate], runners: list[Taker]) -> None:
    """Whoever is left has no room for any job that is left."""
    given_out = {job.job_id for job, _ in match(jobs, runners)}
    for job in jobs:
        if job.job_id not in given_out:
            assert not any(
                fits(job, one) and one.free > 0 and one.left.get(job.queue, 1) > 0 for one in runners
            )


@given(CANDIDATES, takers())
def test_of_equal_jobs_the_first_in_line_goes_first(jobs: list[Candidate], runners: list[Taker]) -> None:
    """Priority, then place: no job of the same shape is passed by one behind it."""
    order = [job.job_id for job, _ in match(jobs, runners)]
    for one in jobs:
        for other in jobs:
            alike = (one.queue, one.labels, one.runner) == (other.queue, other.labels, other.runner)
            if alike and (one.priority, one.place) < (other.priority, other.place) and other.job_id in order:
                assert one.job_id in order


def test_a_rare_machine_is_kept_for_what_only_it_can_do() -> None:
    """A plain job goes to the plain runner, whoever came first."""
    gpu = Taker(1, "r1", frozenset({"gpu"}), frozenset({"k"}), frozenset({"q"}), 1)
    plain = Taker(2, "r2", frozenset(), frozenset({"k"}), frozenset({"q"}), 1)
    job = Candidate(7, "q", "k", 5, 1, frozenset(), None)
    assert [(one.job_id, taker.name) for one, taker in match([job], [gpu, plain])] == [(7, "r2")]
