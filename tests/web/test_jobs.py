"""Jobs over HTTP: enqueued once, listed by pages, shown, waited for, acted on."""

import asyncio
from typing import Any

import httpx
import pytest

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.model.token import Role
from holdfast.store.statement import Statement
from holdfast.testing import ThrowawayDatabase
from tests.store.scene import Scene
from tests.web.conftest import Serve, Service

JOBS = "/api/v1/jobs"


def of(answer: httpx.Response, status: int = 200) -> Any:
    """The JSON of an answer with this status."""
    assert answer.status_code == status, answer.text
    return answer.json()


async def until_awaited(service: Service, job_id: int, times: int) -> None:
    """Wait until so many requests wait for a job."""
    async with asyncio.timeout(20):
        while service.server.watch.waiters(job_id) < times:  # noqa: ASYNC110 - a request has no event
            await asyncio.sleep(0.01)


async def test_a_job_is_enqueued_run_and_waited_for(serve: Serve, work: Any) -> None:
    """From a POST to the result of its handler, over HTTP all the way."""
    app = holdfast.App()

    @app.job
    async def add(a: int, b: int) -> int:
        return a + b

    service = await serve(app)
    producer = await service.caller(Role.PRODUCER)
    made = of(await producer.post(JOBS, json={"kind": "add", "args": {"a": 2, "b": 3}}), 201)
    assert made["status"] == "new"
    waiting = asyncio.create_task(producer.get(f"{JOBS}/{made['id']}/wait"))
    await work(app)
    ended = {"state": "completed", "ended": True, "result": 5, "error": None, "reason": None}
    assert of(await waiting) == {"id": made["id"]} | ended
    wrong = await producer.post(JOBS, json={"kind": "add", "args": {"a": 2}})
    assert of(wrong, 400)["type"] == "urn:holdfast:problem:arguments-invalid"
    command = {"kind": "command", "args": {"argv": ["true"]}}
    assert of(await producer.post(JOBS, json=command), 201)["status"] == "new"
    unknown = await producer.post(JOBS, json={"kind": "subtract"})
    assert of(unknown, 400)["facts"] == {"kind": "subtract"}


async def test_a_repeated_request_makes_its_job_once(service: Service, db: ThrowawayDatabase) -> None:
    """The same key and body give the same answer, ten times at once too; another body is refused."""
    producer = await service.caller(Role.PRODUCER)
    key = {"Idempotency-Key": "order 7"}
    body = {"kind": "greet", "args": {"name": "ada"}}
    answers = await asyncio.gather(*(producer.post(JOBS, json=body, headers=key) for _ in range(10)))
    assert len({of(answer, 201)["id"] for answer in answers}) == 1
    assert await db.value("select count(*) from holdfast.jobs") == 1
    other = await producer.post(JOBS, json=body | {"priority": 1}, headers=key)
    assert of(other, 422)["type"] == "urn:holdfast:problem:request-key-reused"
    # A key is its token's: another caller may have thought of the same one.
    stranger = await service.caller(Role.OPERATOR)
    of(await stranger.post(JOBS, json=body, headers=key), 201)
    assert await db.value("select count(*) from holdfast.jobs") == 2


async def test_a_refused_request_leaves_its_key_free(service: Service) -> None:
    """What was not done can be done with the same key."""
    caller = await service.caller()
    body = {"kind": "greet", "unique_key": "k", "unique_policy": "reject"}
    first = of(await caller.post(JOBS, json=body), 201)
    taken = await caller.post(JOBS, json=body, headers={"Idempotency-Key": "a"})
    assert of(taken, 409)["facts"] == {"unique_key": "k", "job_id": first["id"]}
    of(await caller.post(f"{JOBS}/{first['id']}/cancel"))
    of(await caller.post(JOBS, json=body, headers={"Idempotency-Key": "a"}), 201)


async def test_the_audit_log_knows_who_enqueued_what(service: Service) -> None:
    """One line for each request: who, from where, how many jobs; a repeated or refused one has none."""
    producer = await service.caller(Role.PRODUCER)
    key = {"Idempotency-Key": "order 8"}
    for _ in range(2):
        one = of(await producer.post(JOBS, json={"kind": "greet"}, headers=key), 201)["id"]
    of(await producer.post(JOBS, json={"kind": "greet", "priority": 12}), 400)
    body = {"kind": "greet", "queue": "mail", "unique_key": "n"}
    many = [body, body, {"kind": "bill", "queue": "mail"}]
    ids = [made["id"] for made in of(await producer.post(f"{JOBS}/batch", json={"jobs": many}), 201)]
    reader = await service.caller(Role.VIEWER)
    acts = of(await reader.get("/api/v1/audit"))["acts"]
    batch, single = [act for act in acts if act["action"] == "job.enqueue"]
    assert (single["subject"], batch["subject"]) == (f"job {one}", f"jobs {min(ids)} to {max(ids)}")
    assert {act["address"] for act in (batch, single)} == {"127.0.0.1"}
    assert {act["actor"] for act in (batch, single)} == {"a producer"}
    assert batch["detail"]["after"] == {
        "kinds": {"greet": 2, "bill": 1},
        "queues": {"mail": 3},
        "jobs": {"new": 2, "kept": 1},
    }


async def test_a_batch_is_enqueued_as_a_whole_or_not_at_all(service: Service, db: ThrowawayDatabase) -> None:
    """Handles come in the order of the jobs; one bad job keeps all of them out."""
    caller = await service.caller()
    many = [{"kind": "greet", "args": {"n": n}} for n in range(1200)]
    handles = of(await caller.post(f"{JOBS}/batch", json={"jobs": many}), 201)
    rows = await db.fetch("select id, (args ->> 'n')::int from holdfast.jobs order by 2")
    assert rows == [(handle["id"], n) for n, handle in enumerate(handles)]
    of(await caller.post(f"{JOBS}/batch", json={"jobs": [*many[:3], {"kind": "x", "priority": 12}]}), 400)
    assert await db.value("select count(*) from holdfast.jobs") == 1200
    of(await caller.post(f"{JOBS}/batch", json={"jobs": many * 5}), 400)
    of(await caller.post(f"{JOBS}/batch", json={"jobs": []}), 400)


async def test_a_listing_is_paged_from_the_newest_on(service: Service, client: holdfast.Client) -> None:
    """Each page begins below the last id of the former one, and the last page says so."""
    viewer = await service.caller(Role.VIEWER)
    for number in range(5):
        tags = ["odd"] if number % 2 else []
        await client.enqueue(JobRequest("greet", '{"name": "secret"}'), tags=tags)
    seen: list[int] = []
    before: dict[str, Any] = {}
    while True:
        page = of(await viewer.get(JOBS, params={"limit": 2} | before))
        seen += [job["id"] for job in page["jobs"]]
        if page["next"] is None:
            break
        before = {"before": page["next"]}
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == 5
    odd = of(await viewer.get(JOBS, params={"tag": "odd", "state": ["available", "failed"]}))
    assert len(odd["jobs"]) == 2
    assert "secret" not in str(odd)
    assert of(await viewer.get(f"{JOBS}/count", params={"tag": "odd"})) == {"count": 2}
    zoneless = await viewer.get(JOBS, params={"since": "2026-03-01T12:00:00"})
    assert "with its zone" in of(zoneless, 400)["detail"]


async def test_a_job_is_cancelled_retried_and_discarded(service: Service, client: holdfast.Client) -> None:
    """Each act is in the job's own audit, with who did it, from where and why."""
    caller = await service.caller(Role.OPERATOR)
    handle = await client.enqueue(JobRequest("greet", "{}"))
    path = f"{JOBS}/{handle.id}"
    assert of(await caller.post(f"{path}/cancel", json={"reason": "a mistake"})) == {"ended": True}
    conflict = of(await caller.post(f"{path}/cancel"), 409)
    assert conflict["facts"]["state"] == "cancelled"
    of(await caller.post(f"{path}/retry"))
    of(await caller.post(f"{path}/discard"))
    story = of(await caller.get(path))
    assert story["job"]["state"] == "failed"
    assert [(act["action"], act["actor"], act["reason"], act["address"]) for act in story["audit"]] == [
        ("job.discard", "a operator", None, "127.0.0.1"),
        ("job.retry", "a operator", None, "127.0.0.1"),
        ("job.cancel", "a operator", "a mistake", "127.0.0.1"),
    ]
    missing = of(await caller.post(f"{JOBS}/999999/cancel"), 404)
    assert missing["facts"] == {"job_id": 999999}


async def test_a_sweep_of_everything_has_to_be_meant(service: Service, client: holdfast.Client) -> None:
    """A forgotten filter is refused, and so is a misspelt one; strokes go on until nothing is left."""
    caller = await service.caller()
    await client.enqueue_many([JobRequest("greet", "{}")] * 600)
    of(await caller.post(f"{JOBS}/sweep", json={"action": "cancel"}), 400)
    of(await caller.post(f"{JOBS}/sweep", json={"action": "cancel", "chosen": {"knid": "x"}}), 400)
    of(
        await caller.post(f"{JOBS}/sweep", json={"action": "cancel", "chosen": {"kind": "x"}, "every": True}),
        400,
    )
    of(await caller.post(f"{JOBS}/sweep", json={"action": "cancel", "chosen": {"text": ""}}), 400)
    of(await caller.get(JOBS, params={"text": ""}), 400)
    order: dict[str, Any] = {"action": "cancel", "every": True}
    strokes = []
    while (stroke := of(await caller.post(f"{JOBS}/sweep", json=order)))["before"] is not None:
        strokes.append(stroke["changed"])
        order["before"] = stroke["before"]
    assert strokes == [500, 100]


async def test_a_wait_ends_in_time(service: Service, client: holdfast.Client) -> None:
    """It tells how the job stands when its time is over, and what does not exist is not waited for."""
    caller = await service.caller()
    handle = await client.enqueue(JobRequest("greet", "{}"))
    standing = of(await caller.get(f"{JOBS}/{handle.id}/wait", params={"timeout": 0.2}))
    assert (standing["state"], standing["ended"]) == ("available", False)
    of(await caller.get(f"{JOBS}/999999/wait"), 404)
    of(await caller.get(f"{JOBS}/{handle.id}/wait", params={"timeout": 1e9}), 400)


async def test_a_wait_tells_how_a_job_stands_at_its_end(
    service: Service, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not how it stood when the wait began."""
    caller, look = await service.caller(), service.db.database.run
    [job_id] = await scene.enqueue()
    worker = await scene.worker()

    async def claimed_then(statement: Statement[Any], connection: Any = None) -> Any:
        answer = await look(statement, connection)
        if statement.name == "job_end":
            monkeypatch.undo()
            await scene.claim(worker)
        return answer

    monkeypatch.setattr(service.db.database, "run", claimed_then)
    standing = of(await caller.get(f"{JOBS}/{job_id}/wait", params={"timeout": 0.1}))
    assert (standing["state"], standing["ended"]) == ("running", False)


async def test_many_wait_for_one_job(service: Service, client: holdfast.Client) -> None:
    """All who wait are answered when it ends."""
    caller = await service.caller()
    handle = await client.enqueue(JobRequest("greet", "{}"))
    waits = [asyncio.create_task(caller.get(f"{JOBS}/{handle.id}/wait")) for _ in range(50)]
    await until_awaited(service, handle.id, 50)
    await client.cancel(handle.id)
    states = {of(answer)["state"] for answer in await asyncio.gather(*waits)}
    assert states == {"cancelled"}


async def test_a_stop_lets_nobody_wait(serve: Serve, client: holdfast.Client) -> None:
    """A long poll ends with how the job stands, well before its time."""
    service = await serve()
    caller = await service.caller()
    handle = await client.enqueue(JobRequest("greet", "{}"))
    waiting = asyncio.create_task(caller.get(f"{JOBS}/{handle.id}/wait"))
    await until_awaited(service, handle.id, 1)
    async with asyncio.timeout(4):
        await service.server.stop()
        assert of(await waiting)["ended"] is False
