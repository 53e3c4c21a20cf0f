"""Who may take what: labels, kinds, queues, capacity, limits, pins, drains; and why a job waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.client.operator import Operator
from holdfast.errors import OptionInvalid
from holdfast.maintenance.overseer import Overseer
from holdfast.store import doctor
from tests.runners.conftest import ARGV, OpenYard, Yard, fence, listed


def jobs(offers: list[Any]) -> list[int]:
    """The ids of what was offered."""
    return [offer.job for offer in offers]


async def test_a_runner_needs_all_labels_of_a_job(yard: Yard) -> None:
    """A superset takes it, anything else waits however free it is."""
    [job_id] = await yard.enqueue(labels=["linux", "gpu"])
    for name, labels in (("none", []), ("half", ["gpu"]), ("other", ["linux", "arm"])):
        assert await (await yard.machine(name, labels=labels)).claim() == []
    able = await yard.machine("able", labels=["gpu", "linux", "big"])
    assert (await able.one()).job == job_id


async def test_the_doctor_sees_which_jobs_no_runner_fits(yard: Yard) -> None:
    """With a key or without; a worker with a database is not what they wait for."""
    await yard.enqueue(labels=["gpu"])
    await yard.enqueue(labels=["arm"], concurrency_key="k")
    await yard.machine("able", labels=["gpu", "linux"])
    await yard.machine("pinned", labels=["gpu"], queues=["tests"])
    found = {one.labels[0]: one for one in await yard.db.database.run(doctor.route_health())}
    assert {label: one.online for label, one in found.items()} == {"gpu": 1, "arm": 0}
    assert 0 <= found["arm"].oldest < 60
    assert await yard.db.database.run(doctor.queue_health()) == []


async def test_the_doctor_counts_no_runner_among_the_workers_of_a_queue(yard: Yard) -> None:
    """A job without a route is none of theirs, though they work on its queue and name its kind."""
    await yard.machine(queues=["builds"], kinds=["train"])
    await yard.enqueue(kind="train", args="{}", queue="builds")
    [health] = await yard.db.database.run(doctor.queue_health())
    assert (health.workers, health.unknown) == (0, ["train"])


async def test_a_runner_takes_only_its_queues_and_kinds(yard: Yard) -> None:
    """Both have to fit."""
    await yard.enqueue(queue="builds")
    assert await (await yard.machine("a", queues=["tests"])).claim() == []
    assert await (await yard.machine("b", queues=["builds"], kinds=["train"])).claim() == []
    await (await yard.machine("c", queues=["tests", "builds"])).one()


async def test_a_kind_of_an_application_goes_to_runners_if_it_asks_for_labels(yard: Yard) -> None:
    """Even for none at all: what matters is that it asks."""
    [job_id] = await yard.enqueue(kind="train", args="{}", labels=[])
    assert (await (await yard.machine(kinds=["train"])).one()).job == job_id


async def test_workers_with_a_database_leave_jobs_for_runners_alone(yard: Yard, work: Any) -> None:
    """A process worker that knows the kind and works on the queue does not see it."""
    app = holdfast.App()

    @app.job(kind="train")
    async def train() -> None: ...

    await work(app)
    [routed] = await yard.enqueue(kind="train", args="{}", labels=["gpu"])
    plain = (await yard.client.enqueue(train.job())).id
    await yard.client.wait(plain, timeout=10)
    assert await yard.live(routed) == ("available", 0, 0)


async def test_oldest_first_within_a_priority(yard: Yard) -> None:
    """As in any queue."""
    machine = await yard.machine(slots=4)
    [late, later] = await yard.enqueue(2)
    [urgent] = await yard.enqueue(priority=0)
    offers = [await machine.one()]
    for _ in range(2):
        await machine.accept(offers[-1])
        offers.append(await machine.one())
    assert jobs(offers) == [urgent, late, later]


async def test_slots_and_capacity_of_a_queue_are_never_exceeded(yard: Yard) -> None:
    """However many are asked for, offered ones count as well as running ones."""
    machine = await yard.machine(slots=3, queues=["builds", "tests"], capacity={"builds": 1})
    await yard.enqueue(3, queue="builds")
    await yard.enqueue(3, queue="tests")
    offers = await machine.claim(count=10)
    assert sorted(offer.queue for offer in offers) == ["builds", "tests", "tests"]
    for offer in offers:
        await machine.start(offer)
    assert await machine.claim(count=10) == []
    assert (await machine.sync(*map(listed, offers), free=10)).hold[3:] == []
    [build] = [offer for offer in offers if offer.queue == "builds"]
    await machine.finish(build)
    assert (await machine.one()).queue == "builds"


async def test_a_runner_whose_capacity_is_used_up_keeps_no_job_from_another(yard: Yard) -> None:
    """It would come first, for it has no label that others might need, and may hold no more of the queue."""
    full = await yard.machine("a", slots=2, queues=["builds", "tests"], capacity={"builds": 1})
    idle = await yard.machine("b", queues=["builds"], labels=["gpu"])
    await yard.enqueue(queue="builds")
    build = await full.one()
    await full.start(build)
    others = asyncio.create_task(full.sync(listed(build), free=1, wait=30))
    waiting = asyncio.create_task(idle.claim(wait=30))
    for machine in (full, idle):
        await yard.desk_hears(machine)
    [job_id] = await yard.enqueue(queue="builds")
    async with asyncio.timeout(10):
        assert jobs(await waiting) == [job_id]
    assert not others.done()
    await yard.enqueue(queue="tests")
    async with asyncio.timeout(10):
        assert [hold.assignment is None for hold in (await others).hold] == [True, False]


async def test_two_servers_do_not_fill_a_slot_twice(yard: Yard, open_yard: OpenYard) -> None:
    """A runner that asks both at once gets what it has room for, and no job goes to two runners."""
    other = await open_yard()
    machines = [await yard.machine(f"m{n}", slots=2) for n in range(4)]
    twins = [one.at(other, number=1000) for one in machines]
    job_ids = set(await yard.enqueue(20))
    claims = [
        asyncio.create_task(one.claim(count=2)) for pair in zip(machines, twins, strict=True) for one in pair
    ]
    await asyncio.gather(*claims)
    held = await yard.db.fetch(
        "select worker_id, count(*) from holdfast.live_jobs where worker_id is not null group by 1"
    )
    assert sorted(count for _, count in held) == [2, 2, 2, 2]
    offered = await yard.db.fetch("select job_id, count(*) from holdfast.assignments group by 1")
    assert {count for _, count in offered} == {1}
    assert {job_id for job_id, _ in offered} <= job_ids


async def test_the_limit_of_a_queue_counts_runners_and_workers_together(yard: Yard) -> None:
    """Six who claim at once under a limit of two hold two."""
    await yard.enqueue(6)
    await Operator(yard.db.database, "me").queues.limit("default", 2)
    machines = [await yard.machine(f"m{n}") for n in range(6)]
    got = await asyncio.gather(*(machine.claim() for machine in machines))
    assert sum(map(len, got)) == 2
    [[offer], *_] = [offers for offers in got if offers]
    holder = machines[[bool(offers) for offers in got].index(True)]
    await holder.finish(offer)
    assert len(await holder.claim()) == 1


async def test_a_concurrency_key_runs_one_at_a_time(yard: Yard) -> None:
    """Jobs of another key behind it are not held up."""
    await yard.enqueue(3, concurrency_key="a")
    [other] = await yard.enqueue(concurrency_key="b")
    machine = await yard.machine(slots=10)
    offers = await machine.claim(count=10)
    assert len(offers) == 2
    assert other in jobs(offers)


async def test_jobs_of_one_key_count_together_whatever_they_ask_for(yard: Yard) -> None:
    """Kinds and labels make routes of their own, and the key is one."""
    await yard.enqueue(concurrency_key="a")
    await yard.enqueue(concurrency_key="a", labels=["gpu"])
    machine = await yard.machine(slots=10, labels=["gpu"])
    [offer] = await machine.claim(count=10)
    await machine.start(offer)
    assert await machine.claim(count=10) == []
    await machine.finish(offer)
    assert len(await machine.claim(count=10)) == 1


@pytest.mark.usefixtures("only_woken")
async def test_a_paused_queue_gives_nothing_until_it_is_resumed(yard: Yard) -> None:
    """The resume wakes whoever waits."""
    queues = Operator(yard.db.database, "me").queues
    machine = await yard.machine()
    [job_id] = await yard.enqueue()
    await queues.pause("default")
    assert await machine.claim() == []
    waiting = asyncio.create_task(machine.claim(wait=20))
    await yard.desk_hears(machine)
    await queues.resume("default")
    async with asyncio.timeout(5):
        assert jobs(await waiting) == [job_id]


async def test_a_pinned_job_waits_for_its_runner(yard: Yard) -> None:
    """Nobody else may take it, without a deadline for ever."""
    [job_id] = await yard.enqueue(runner="build-2")
    assert await (await yard.machine("build-1")).claim() == []
    assert (await (await yard.machine("build-2")).one()).job == job_id


@pytest.mark.usefixtures("only_woken")
async def test_after_its_deadline_others_may_take_a_pinned_job(yard: Yard) -> None:
    """Whoever waits is woken by the leader at that time."""
    machine = await yard.machine("build-1")
    [job_id] = await yard.enqueue(runner="build-2", pin_for=3600)
    overseer = yard.duty(Overseer)
    await overseer.lead(await yard.lead())
    waiting = asyncio.create_task(machine.claim(wait=20))
    await yard.desk_hears(machine)
    await yard.db.fetch("update holdfast.placements set pinned_until = holdfast.now()")
    await overseer.lead(await yard.lead())
    async with asyncio.timeout(5):
        assert jobs(await waiting) == [job_id]


async def test_a_retry_at_the_end_of_a_pin_is_for_others_as_well(yard: Yard, eventually: Any) -> None:
    """It has read for whom the job was and waits for a key, while the leader gives it to everybody."""
    machine = await yard.machine("build-2")
    [job_id] = await yard.enqueue(runner="build-2", pin_for=3600, unique_key="k")
    await machine.finish(await machine.one(), "failed", retry=False)
    overseer, term = yard.duty(Overseer), await yard.lead()
    await yard.db.fetch("update holdfast.placements set pinned_until = holdfast.now()")
    async with yard.db.database.connection() as connection:
        holding = connection.transaction()
        await holding.start()
        await yard.client.enqueue(JobRequest("command", ARGV), unique_key="k", connection=connection)
        retrying = asyncio.create_task(yard.client.retry(job_id))
        await eventually(lambda: yard.db.value("select count(*) from pg_locks where not granted"))
        await overseer.lead(term)
        await holding.rollback()
    await retrying
    await overseer.lead(term)
    assert (await (await yard.machine("build-1")).one()).job == job_id


async def test_a_retried_job_keeps_its_placement(yard: Yard) -> None:
    """An operator's retry asks the same of runners as the first enqueue did."""
    machine = await yard.machine(labels=["gpu"])
    [job_id] = await yard.enqueue(labels=["gpu"])
    await machine.finish(await machine.one(), "failed", retry=False)
    await yard.client.retry(job_id)
    assert await (await yard.machine("plain")).claim() == []
    assert (await machine.one()).attempt == 2


async def test_a_replaced_job_asks_anew(yard: Yard) -> None:
    """Its former labels and spec are forgotten with its former arguments."""
    [first] = await yard.enqueue(unique_key="k", labels=["gpu"])
    [again] = await yard.enqueue(
        unique_key="k", unique_policy="replace", args='{"argv": ["new"]}', labels=["arm"]
    )
    assert first == again
    assert await (await yard.machine("gpu", labels=["gpu"])).claim() == []
    offer = await (await yard.machine("arm", labels=["arm"])).one()
    assert '"new"' in (offer.spec or "")


async def test_a_replaced_job_may_ask_for_no_runner_any_more(yard: Yard) -> None:
    """Then it is any worker's."""
    await yard.enqueue(kind="train", args="{}", unique_key="k", labels=["gpu"])
    await yard.enqueue(kind="train", args="{}", unique_key="k", unique_policy="replace")
    assert await yard.db.value("select route_id from holdfast.live_jobs") is None
    assert await yard.db.value("select count(*) from holdfast.placements") == 0


async def test_plain_sql_enqueues_commands_too(yard: Yard) -> None:
    """A trigger, a schedule, a psql session: a command always means a runner."""
    job_id = await yard.db.value("""select holdfast.enqueue('command', '{"argv": ["true"]}')""")
    assert (await (await yard.machine()).one()).job == job_id


async def test_a_drain_holds_through_heartbeats_restarts_and_absence(yard: Yard) -> None:
    """Only an operator undoes it."""
    workers = Operator(yard.db.database, "me").workers
    machine = await yard.machine(slots=2)
    await yard.enqueue(3)
    mine = await machine.one()
    await machine.start(mine)
    await workers.drain(machine.worker_id, "update")
    yard.desk.hearing.forget()
    for _ in range(3):
        answer = await machine.sync(listed(mine), free=1)
        assert (answer.draining, [(one.job, one.attempt) for one in answer.hold]) == (True, [fence(mine)])
    assert await machine.claim() == []
    await machine.finish(mine)
    await machine.leave()
    again = await yard.machine(slots=2)
    assert again.registered.draining
    assert (await again.sync(free=2)).hold == []
    await workers.resume(machine.worker_id)
    await yard.desk_hears_of(again)
    assert len((await again.sync(free=2)).hold) == 2


async def test_a_drain_reaches_a_sync_that_waits(yard: Yard) -> None:
    """It is answered at once."""
    machine = await yard.machine()
    waiting = asyncio.create_task(machine.sync(free=1, wait=30))
    await yard.desk_hears(machine)
    await Operator(yard.db.database, "me").workers.drain(machine.worker_id)
    async with asyncio.timeout(5):
        assert (await waiting).draining


async def test_a_runner_that_drains_itself_gets_nothing_new(yard: Yard) -> None:
    """For as long as it says so, and no longer."""
    machine = await yard.machine()
    await yard.enqueue()
    assert (await machine.sync(free=1, draining=True)).hold == []
    assert len((await machine.sync(free=1)).hold) == 1


async def test_a_newer_sync_lets_the_older_one_answer(yard: Yard) -> None:
    """A runner has one ear."""
    machine = await yard.machine()
    older = asyncio.create_task(machine.sync(free=1, wait=30))
    await yard.desk_hears(machine)
    newer = asyncio.create_task(machine.sync(free=1, wait=30))
    async with asyncio.timeout(5):
        assert (await older).hold == []
    await yard.enqueue()
    async with asyncio.timeout(5):
        assert len((await newer).hold) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"labels": "gpu"},
        {"labels": ["a" * 101]},
        {"pin_for": 5},
        {"runner": ""},
        {"on_loss": "pray"},
        {"stall_limit": 0},
    ],
)
async def test_a_wrong_wish_is_refused_by_its_name(yard: Yard, wrong: Any) -> None:
    """The error names the option."""
    with pytest.raises(OptionInvalid) as refused:
        await yard.enqueue(**wrong)
    assert refused.value.option in wrong


WHY = [
    ({}, [], "no runner works on queue 'default'"),
    ({"labels": ["gpu", "big"]}, [{"labels": ["gpu"]}], "has the labels big, gpu"),
    ({"runner": "build-9"}, [{}], "pinned to runner build-9, which was never registered"),
    ({"runner": "build-1"}, [{"gone": True}], "pinned to runner build-1, which is offline"),
    ({}, [{"draining": True}], "draining"),
    ({}, [{"kinds": ["train"]}], "takes kind 'command'"),
]


@pytest.mark.parametrize(("options", "machines", "sentence"), WHY)
async def test_a_waiting_job_says_why(yard: Yard, options: Any, machines: Any, sentence: str) -> None:
    """One sentence that says what is missing."""
    operator = Operator(yard.db.database, "me")
    for number, asked in enumerate(machines, 1):
        wishes = dict(asked)
        gone, draining = wishes.pop("gone", False), wishes.pop("draining", False)
        machine = await yard.machine(f"build-{number}", **wishes)
        if gone:
            await machine.leave()
        if draining:
            await operator.workers.drain(machine.worker_id)
    [job_id] = await yard.enqueue(**options)
    why = await operator.jobs.why(job_id)
    assert why is not None
    assert sentence in why


async def test_a_job_waits_for_a_free_slot(yard: Yard) -> None:
    """All that could take it are busy."""
    machine = await yard.machine()
    [_, waits] = await yard.enqueue(2)
    await machine.start(await machine.one())
    why = await Operator(yard.db.database, "me").jobs.why(waits)
    assert why is not None
    assert "all slots (1) of 1 runner are busy" in why
