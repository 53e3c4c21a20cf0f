"""Ends are told to endpoints: once, signed, again where they were not taken, never into our own network."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.cli.delivering import SLOTS
from holdfast.client.delivery_operator import DeliveryOperator, Wish
from holdfast.errors import (
    DeliveryFailed,
    DeliveryNotFound,
    EndpointNotFound,
    EndpointTaken,
    OptionInvalid,
    StateConflict,
)
from holdfast.maintenance.deliverer import IDLE, Deliverer
from holdfast.model.delivery import AT_ONCE, DeliveryEvent, DeliveryState
from holdfast.model.job import NewJob
from holdfast.model.outcome import Complete, Outcome, PutBack
from holdfast.rules.signature import is_signed
from holdfast.runners.courier import Courier
from holdfast.store import attempts, deliveries, feed, jobs
from holdfast.store.attempts import Ended, Returned
from holdfast.store.sqlfile import rendered
from holdfast.testing import Clock, Probe
from tests.conftest import StartWorker
from tests.maintenance.history import ended
from tests.maintenance.receiver import Receiver, deafness, receiving
from tests.store.scene import Scene, fence
from tests.store.test_plans import nodes

Look = Callable[[], Awaitable[None]]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """An endpoint that takes everything."""
    async with receiving() as receiver:
        yield receiver


@pytest.fixture
def operator(scene: Scene) -> DeliveryOperator:
    """Who adds endpoints."""
    return DeliveryOperator(scene.db.database, "me")


@pytest.fixture
async def look(scene: Scene, duty: Any) -> Look:
    """Makes the deliveries of what has ended so far."""
    deliverer = duty(Deliverer)
    term = await scene.lead()

    async def until_done() -> None:
        # History counts as complete a moment after the last transaction: look until it does.
        moment = await scene.db.value("select holdfast.now()")
        while True:
            await deliverer.lead(term)
            if await scene.db.value("select min(moment) > $1 from holdfast.delivery_places", moment):
                return

    return until_done


async def test_an_end_is_told_with_a_signature(
    scene: Scene,
    operator: DeliveryOperator,
    receiver: Receiver,
    look: Look,
    work: StartWorker,
    eventually: Callable[..., Awaitable[Any]],
) -> None:
    """Who it is from can be checked, and the job that carries it has a result."""
    secret = await operator.add("hub", receiver.url)
    job = await scene.one()
    await scene.complete(job)
    await look()
    await work(Courier(scene.db.database, private=True).app())
    await eventually(lambda: operator.find(state=DeliveryState.DELIVERED))
    [(headers, body)] = receiver.got
    assert is_signed(secret, body, headers["holdfast-signature"], time.time())
    assert headers["holdfast-event"] == "job.completed"
    told = json.loads(body)
    assert (told["event"], told["job"]["id"], told["job"]["attempt"]) == ("job.completed", job.id, 1)
    [delivery] = await operator.find()
    assert (delivery.status, delivery.problem, str(delivery.id)) == (200, None, headers["holdfast-delivery"])
    await look()
    assert len(await operator.find()) == 1, "what carries deliveries is told of as well"


async def test_certificates_are_read_once_and_not_for_each_delivery(
    scene: Scene, operator: DeliveryOperator, receiver: Receiver, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading them holds the whole service up."""
    await operator.add("hub", receiver.url)
    await scene.complete(await scene.one(), await scene.one())
    await look()
    courier = Courier(scene.db.database, private=True)
    monkeypatch.setattr("ssl.create_default_context", None)
    for delivery in await operator.find():
        await courier.deliver(delivery.id)
    assert len(receiver.got) == 2


async def test_an_endpoint_that_never_answers_holds_no_other_up(
    scene: Scene,
    operator: DeliveryOperator,
    receiver: Receiver,
    look: Look,
    work: StartWorker,
    eventually: Callable[..., Awaitable[Any]],
) -> None:
    """It has so many slots and no more, however much there is to tell it."""
    async with deafness() as url:
        await operator.add("deaf", url)
        # More than time out while the test waits.
        for _ in range(5 * AT_ONCE):
            await scene.complete(await scene.one())
        await look()
        await operator.add("hub", receiver.url, Wish(kinds=["greet"]))
        await scene.complete(await scene.one())
        await look()
        await work(Courier(scene.db.database, private=True).app(), slots=2 * AT_ONCE)
        await eventually(lambda: operator.find(endpoint="hub", state=DeliveryState.DELIVERED))
        assert {one.state for one in await operator.find(endpoint="deaf")} == {DeliveryState.WAITING}


async def test_a_service_has_room_beside_many_endpoints_that_never_answer(
    scene: Scene,
    operator: DeliveryOperator,
    receiver: Receiver,
    look: Look,
    work: StartWorker,
    eventually: Callable[..., Awaitable[Any]],
) -> None:
    """Each has its slots, and what is to be told to them is older."""
    async with deafness() as url:
        for nth in range(20):
            await operator.add(f"deaf {nth}", url)
        for _ in range(2 * AT_ONCE):
            await scene.complete(await scene.one())
        await look()
        await operator.add("hub", receiver.url, Wish(kinds=["greet"]))
        await scene.complete(await scene.one())
        await look()
        await work(Courier(scene.db.database, private=True).app(), slots=SLOTS)
        await eventually(lambda: operator.find(endpoint="hub", state=DeliveryState.DELIVERED))


async def test_an_endpoint_is_told_what_it_wants(
    scene: Scene, operator: DeliveryOperator, look: Look
) -> None:
    """Its events, of its queues and kinds, from when it was added on."""
    await scene.complete(await scene.one())
    await operator.add("all", "https://example.com")
    retries = Wish(events=[DeliveryEvent.ATTEMPT_RETRIED])
    await operator.add("retries", "https://example.com", retries)
    await operator.add("other", "https://example.com", Wish(queues=["other"]))
    await operator.add("kind", "https://example.com", Wish(kinds=["greet"]))
    done, again = await scene.one(), await scene.one()
    await scene.complete(done)
    back = PutBack(Outcome.RETRIED, 60, counts=True, reason="it broke")
    await scene.run(attempts.put_back_jobs([Returned(fence(again), back)]))
    await look()
    told = sorted((one.endpoint, one.event, one.job_id) for one in await operator.find())
    assert told == [
        ("all", "job.completed", done.id),
        ("kind", "job.completed", done.id),
        ("retries", "attempt.retried", again.id),
    ]
    assert [one.job_id for one in await operator.find(endpoint="retries")] == [again.id]


@pytest.mark.parametrize("ahead", [0, 180])
async def test_an_end_whose_transaction_is_under_way_is_not_missed(
    scene: Scene, operator: DeliveryOperator, duty: Any, clock: Clock, ahead: float
) -> None:
    """The place of the last look does not pass it, however long it takes by whatever clock."""
    await operator.add("hub", "https://example.com")
    late, early = await scene.one(), await scene.one()
    deliverer, term = duty(Deliverer), await scene.lead()
    session = await scene.session()
    transaction = session.transaction()
    await transaction.start()
    await scene.complete(late, connection=session)
    await scene.complete(early)
    if ahead:
        await clock.advance(ahead)
    for _ in range(2):
        await deliverer.lead(term)
        assert await operator.find() == []
    await transaction.commit()
    await told(operator, deliverer, term, late.id, early.id)


async def test_a_plain_end_whose_transaction_is_under_way_is_not_missed(
    scene: Scene, operator: DeliveryOperator, duty: Any, clock: Clock
) -> None:
    """Nearly all jobs end by a statement of their own, which locks other tables in other ways."""
    await operator.add("hub", "https://example.com")
    late = await scene.one()
    deliverer, term = duty(Deliverer), await scene.lead()
    session = await scene.session()
    transaction = session.transaction()
    await transaction.start()
    ended = attempts.complete_jobs([Ended(fence(late), Complete(None))])
    assert await scene.run(ended, session) == [late.id]
    await clock.advance(180)
    for _ in range(2):
        await deliverer.lead(term)
    await transaction.commit()
    await told(operator, deliverer, term, late.id)


async def test_an_end_that_waits_for_a_lock_is_not_missed(
    scene: Scene, operator: DeliveryOperator, duty: Any, clock: Clock
) -> None:
    """Its time is that of when it began to wait."""
    await operator.add("hub", "https://example.com")
    late = await scene.one()
    deliverer, term = duty(Deliverer), await scene.lead()
    blocker = await scene.session()
    transaction = blocker.transaction()
    await transaction.start()
    await scene.execute(blocker, "lock table holdfast.finished_completed in share mode")
    waiting = asyncio.create_task(scene.complete(late, connection=await scene.session()))
    await scene.blocked()
    await clock.advance(180)
    for _ in range(2):
        await deliverer.lead(term)
    await transaction.rollback()
    assert await waiting == [late.id]
    await told(operator, deliverer, term, late.id)


async def test_a_leader_of_another_login_sees_who_still_writes(
    scene: Scene, operator: DeliveryOperator
) -> None:
    """One that may not see what other logins do."""
    await operator.add("hub", "https://example.com")
    job, writer, looker = await scene.one(), await scene.session(), await scene.session()
    stranger = f"stranger_to_{scene.db.schema}"
    transaction = looker.transaction()
    await transaction.start()
    for line in (
        f"create role {stranger}",
        f"grant usage on schema {scene.db.schema} to {stranger}",
        f"grant select on holdfast.endpoints to {stranger}",
        f"set local role {stranger}",
    ):
        await scene.execute(looker, line)
    async with writer.transaction():
        await scene.complete(job, connection=writer)
        horizon = await scene.run(deliveries.delivery_horizon(), looker)
    await transaction.rollback()
    assert horizon is not None
    assert len(horizon.writers) == 1


async def test_a_transaction_that_only_enqueues_holds_nothing_up(
    scene: Scene, operator: DeliveryOperator
) -> None:
    """An application may take its time."""
    await operator.add("hub", "https://example.com")
    session = await scene.session()
    async with session.transaction():
        await scene.run(jobs.enqueue_jobs([NewJob(kind="greet", args="{}", unique_key="once")]), session)
        horizon = await scene.run(deliveries.delivery_horizon())
    assert horizon is not None
    assert horizon.writers == []


async def test_who_holds_deliveries_up_is_named(
    scene: Scene, operator: DeliveryOperator, duty: Any, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for each wait, with the session to end."""
    monkeypatch.setattr("holdfast.maintenance.deliverer.PATIENCE", 0.0)
    await operator.add("hub", "https://example.com")
    job, session = await scene.one(), await scene.session()
    deliverer, term = duty(Deliverer), await scene.lead()
    async with session.transaction():
        await scene.complete(job, connection=session)
        for _ in range(3):
            await deliverer.lead(term)
    [held] = probe.seen("deliveries.held")
    assert held["writers"].endswith(f"of session {session.get_server_pid()}")


async def told(operator: DeliveryOperator, deliverer: Deliverer, term: int, *job_ids: int) -> None:
    """Look until these ends are told, and nothing else."""
    async with asyncio.timeout(20):
        while len(await operator.find()) < len(job_ids):
            await deliverer.lead(term)
    assert {one.job_id for one in await operator.find()} == set(job_ids)


async def test_an_end_is_told_that_was_begun_after_the_clock_was_set_back(
    scene: Scene, operator: DeliveryOperator, duty: Any, clock: Clock
) -> None:
    """While the writers of the look before that were waited for."""
    start = await clock.now()
    await clock.set(start)
    await operator.add("hub", "https://example.com")
    first, second = await scene.one(), await scene.one()
    deliverer, term = duty(Deliverer), await scene.lead()
    sessions = [await scene.session(), await scene.session()]
    transactions = [session.transaction() for session in sessions]
    for transaction in transactions:
        await transaction.start()
    await clock.set(start + timedelta(seconds=20))
    await scene.complete(first, connection=sessions[0])
    await deliverer.lead(term)
    await clock.set(start + timedelta(seconds=10))
    await scene.complete(second, connection=sessions[1])
    await transactions[0].commit()
    await deliverer.lead(term)
    await transactions[1].commit()
    await clock.set(start + timedelta(seconds=30))
    await told(operator, deliverer, term, first.id, second.id)


async def test_looks_in_small_batches_tell_everything_once(
    scene: Scene, operator: DeliveryOperator, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends of one moment are many, and more than a look takes."""
    monkeypatch.setattr("holdfast.maintenance.deliverer.BATCH", 3)
    await operator.add("hub", "https://example.com")
    worker = await scene.worker()
    job_ids = await scene.enqueue(10)
    await scene.complete(*await scene.claim(worker))
    await look()
    assert sorted(one.job_id for one in await operator.find()) == job_ids


async def test_a_look_reads_a_part_of_the_history_that_waits(
    scene: Scene, operator: DeliveryOperator, clock: Clock
) -> None:
    """However much there is: if each look sorted all of it, the next ones would come faster than it goes."""
    await operator.add("hub", "https://example.com")
    now, term = await clock.now(), await scene.lead()
    for minutes in range(20):
        await ended(scene, now + timedelta(minutes=minutes), 10)
    looked = deliveries.plan_deliveries(term, now + timedelta(hours=1), 1000, window=150.0)
    async with scene.db.database.transaction() as connection:
        await scene.db.database.run(feed.plan_by_time("10s"), connection)
        asked = f"explain (analyze, format json) {rendered(looked.text, scene.db.schema)}"
        plan = json.loads(await connection.fetchval(asked, *looked.parameters))[0]["Plan"]
    read = [
        node["Actual Rows"] * node["Actual Loops"]
        for node in nodes(plan)
        if node["Node Type"] != "ModifyTable" and node.get("Relation Name", "").startswith("finished_")
    ]
    assert 10 <= sum(read) <= 30


async def test_a_long_quiet_stretch_of_history_is_soon_passed(
    scene: Scene, operator: DeliveryOperator, duty: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ended at its beginning and at its end is told, in few looks."""
    monkeypatch.setattr("holdfast.maintenance.deliverer.BATCH", 3)
    await operator.add("hub", "https://example.com")
    start = await clock.now()
    job_ids = await ended(scene, start + timedelta(seconds=1), 10)
    job_ids += await ended(scene, start + timedelta(days=30), 10)
    await clock.set(start + timedelta(days=30, seconds=1))
    deliverer, term = duty(Deliverer), await scene.lead()
    looks = 1
    while await deliverer.lead(term) == 0.0:
        looks += 1
        assert looks < 100
    assert sorted(one.job_id for one in await operator.find()) == job_ids


@pytest.mark.parametrize("leads_on", [True, False])
async def test_ends_are_told_while_the_clock_of_the_server_stands_behind(
    scene: Scene, operator: DeliveryOperator, duty: Any, clock: Clock, leads_on: bool
) -> None:
    """Their times were looked at before; nothing is told again, and what follows is told too."""
    await operator.add("hub", "https://example.com")
    worker = await scene.worker()
    job_ids = await scene.enqueue(4)
    deliverer, term, seen = duty(Deliverer), await scene.lead(), []
    start = await clock.now()
    for nth, seconds in enumerate((10, 20, 15, 16)):
        await clock.set(start + timedelta(seconds=seconds))
        await scene.complete(*await scene.claim(worker, limit=1))
        await clock.set(start + timedelta(seconds=seconds + 0.1))
        if nth == 2 and not leads_on:
            deliverer, term = duty(Deliverer), await scene.lead()
        await deliverer.lead(term)
        seen.append([one.job_id for one in await operator.find()])
    assert seen == [job_ids[: nth + 1][::-1] for nth in range(4)]


async def test_a_clock_that_is_set_back_has_nothing_told_long_ago_read_again(
    scene: Scene, operator: DeliveryOperator, duty: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks that go back start there once: the next one goes on from where the last ended."""
    monkeypatch.setattr("holdfast.maintenance.deliverer.BATCH", 3)
    await operator.add("hub", "https://example.com")
    worker, start = await scene.worker(), await clock.now()
    job_ids = await scene.enqueue(8)
    await scene.complete(*await scene.claim(worker))
    await clock.set(start + timedelta(seconds=1))
    deliverer, term = duty(Deliverer), await scene.lead()
    looks = 1
    while await deliverer.lead(term) == 0.0:
        looks += 1
        assert looks < 10
    assert sorted(one.job_id for one in await operator.find()) == job_ids


async def test_only_the_leader_makes_deliveries(scene: Scene, operator: DeliveryOperator, duty: Any) -> None:
    """One of a former term makes none; without an endpoint nobody looks."""
    term = await scene.lead()
    assert await duty(Deliverer).lead(term) == IDLE
    await operator.add("hub", "https://example.com")
    await scene.complete(await scene.one())
    await duty(Deliverer).lead(term - 1)
    assert await operator.find() == []


async def test_what_is_refused_is_tried_again_and_dies_in_the_end(
    scene: Scene,
    operator: DeliveryOperator,
    receiver: Receiver,
    look: Look,
    work: StartWorker,
    eventually: Callable[..., Awaitable[Any]],
) -> None:
    """A redirect is a refusal too. Whoever asks for it has a dead delivery made again."""
    receiver.statuses = [500, 302]
    await operator.add("hub", receiver.url)
    await scene.complete(await scene.one())
    await look()
    await scene.db.fetch("update holdfast.jobs set max_attempts = 2 where kind = 'holdfast:deliver'")
    await work(Courier(scene.db.database, private=True).app())
    [delivery] = await eventually(refused(operator, 500))
    assert (delivery.state, delivery.problem) == (DeliveryState.WAITING, "answered 500: no thanks")
    with pytest.raises(StateConflict, match="under way"):
        await operator.redeliver(delivery.id)
    again = "update holdfast.live_jobs set state = 'available' where state = 'scheduled' returning 1"
    await eventually(lambda: scene.db.value(again))
    await eventually(lambda: operator.find(state=DeliveryState.DEAD))
    assert len(receiver.got) == 2
    await operator.redeliver(delivery.id)
    await eventually(lambda: operator.find(state=DeliveryState.DELIVERED))
    await operator.redeliver(delivery.id)
    await eventually(taken(receiver, 4))
    audit = await scene.db.fetch("select action from holdfast.audit_log order by id")
    assert audit == [("endpoint.add",), ("delivery.redeliver",), ("delivery.redeliver",)]


async def test_of_those_who_ask_for_a_delivery_at_once_one_has_it_made(
    scene: Scene, operator: DeliveryOperator, look: Look
) -> None:
    """The others are told that it is under way, and by which job."""
    await operator.add("hub", "https://example.com")
    await scene.complete(await scene.one())
    await look()
    await scene.db.fetch("delete from holdfast.live_jobs")
    [delivery] = await operator.find()
    session = await scene.session()
    async with session.transaction():
        await scene.run(deliveries.lock_delivery(delivery.id), session)
        asking = [asyncio.create_task(operator.redeliver(delivery.id)) for _ in range(3)]
        await scene.blocked()
    answers = await asyncio.gather(*asking, return_exceptions=True)
    [carrier_id] = await scene.db.fetch("select job_id from holdfast.live_jobs")
    assert [one for one in answers if isinstance(one, int)] == list(carrier_id)
    assert {one.job_id for one in answers if isinstance(one, StateConflict)} == set(carrier_id)


def refused(operator: DeliveryOperator, status: int) -> Callable[[], Awaitable[Any]]:
    """Asks for the deliveries that were answered with *status*."""

    async def ask() -> Any:
        return [one for one in await operator.find() if one.status == status]

    return ask


def taken(receiver: Receiver, count: int) -> Callable[[], Awaitable[bool]]:
    """Asks whether so many requests came."""

    async def ask() -> bool:
        return len(receiver.got) == count

    return ask


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]"])
async def test_nothing_is_delivered_into_our_own_network(
    scene: Scene, operator: DeliveryOperator, receiver: Receiver, look: Look, host: str
) -> None:
    """However the address is written, unless it is allowed."""
    await operator.add("hub", receiver.url.replace("127.0.0.1", host))
    await scene.complete(await scene.one())
    await look()
    [delivery] = await operator.find()
    with pytest.raises(DeliveryFailed, match="no public address: those take deliveries_private"):
        await Courier(scene.db.database).deliver(delivery.id)
    assert receiver.got == []


async def test_an_endpoint_that_is_not_there_is_a_failure(
    scene: Scene, operator: DeliveryOperator, look: Look
) -> None:
    """The problem is kept, in words."""
    async with receiving() as closed:
        await operator.add("hub", closed.url)
    await scene.complete(await scene.one())
    await look()
    [delivery] = await operator.find()
    with pytest.raises(DeliveryFailed):
        await Courier(scene.db.database, private=True).deliver(delivery.id)
    [delivery] = await operator.find()
    assert delivery.status is None
    assert "ConnectError" in (delivery.problem or "")


async def test_an_endpoint_that_was_removed_is_told_nothing(
    scene: Scene, operator: DeliveryOperator, receiver: Receiver, look: Look
) -> None:
    """What was on its way finds nobody who wants it."""
    await operator.add("hub", receiver.url)
    await scene.complete(await scene.one())
    await look()
    [delivery] = await operator.find()
    await operator.remove("hub")
    assert "nobody" in await Courier(scene.db.database, private=True).deliver(delivery.id)
    assert receiver.got == []
    assert await operator.endpoints() == []


async def test_an_endpoint_that_was_put_in_by_hand_can_be_removed(
    scene: Scene, operator: DeliveryOperator
) -> None:
    """Its URL may be none; the audit log says as much."""
    await operator.add("hub", "https://example.com")
    await scene.db.fetch("update holdfast.endpoints set url = 'not a url'")
    await operator.remove("hub")
    assert await operator.endpoints() == []
    assert (
        await scene.db.value(
            "select detail #>> '{before,url}' from holdfast.audit_log where action = 'endpoint.remove'"
        )
        == "no address that can be read"
    )


async def test_wrong_use_is_named(operator: DeliveryOperator) -> None:
    """A name that is taken, one that is unknown, a delivery that never was, a URL that is none."""
    await operator.add("hub", "https://example.com")
    with pytest.raises(EndpointTaken):
        await operator.add("hub", "https://example.com")
    with pytest.raises(EndpointNotFound):
        await operator.remove("other")
    with pytest.raises(DeliveryNotFound):
        await operator.redeliver(7)
    with pytest.raises(OptionInvalid):
        await operator.add("file", "file:///etc/passwd")
    with pytest.raises(OptionInvalid, match="queue"):
        await operator.add("none", "https://example.com", Wish(queues=[""]))
    with pytest.raises(OptionInvalid, match=r"kind .* it has 201 characters"):
        await operator.add("long", "https://example.com", Wish(kinds=["k" * 201]))
    assert [one.name for one in await operator.endpoints()] == ["hub"]
