"""What operators do over HTTP: queues, workers, schedules, tokens, runs, the audit log."""

import asyncio
from typing import Any

import httpx

import holdfast
from holdfast.model.token import Role
from holdfast.testing import ThrowawayDatabase
from tests.web.conftest import Service

API = "/api/v1"


def of(answer: httpx.Response, status: int = 200) -> Any:
    """The JSON of an answer with this status."""
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_a_queue_is_paused_limited_and_listed(service: Service) -> None:
    """Whatever its name holds; each change answers the queue as it is then, and is audited."""
    caller = await service.caller(Role.OPERATOR)
    name = "a/b ü?&"
    unknown = of(await caller.post(f"{API}/queues/pause", json={"name": name}), 404)
    assert unknown["facts"] == {"name": name}
    paused = of(await caller.post(f"{API}/queues/pause", json={"name": name, "create": True}))
    assert paused["paused"] is True
    assert of(await caller.post(f"{API}/queues/limit", json={"name": name, "limit": 3}))["max_running"] == 3
    assert of(await caller.post(f"{API}/queues/key-limit", json={"name": name, "limit": 2}))["key_limit"] == 2
    kept = of(await caller.post(f"{API}/queues/retention", json={"name": name, "seconds": 3600}))
    assert kept["retention"] == "PT3600S"
    of(await caller.post(f"{API}/queues/resume", json={"name": name}))
    lifted = of(await caller.post(f"{API}/queues/limit", json={"name": name, "limit": None}))
    assert lifted["max_running"] is None
    assert [queue["name"] for queue in of(await caller.get(f"{API}/queues"))] == [name]
    acts = of(await caller.get(f"{API}/audit", params={"subject": f"queue {name}"}))["acts"]
    assert acts[0]["detail"]["before"]["max_running"] == 3
    assert acts[0]["detail"]["after"]["max_running"] is None
    assert {act["actor"] for act in acts} == {"a operator"}


async def test_a_worker_is_listed_and_drained(service: Service, work: Any) -> None:
    """An unknown one is a 404; it leaves, so that there is nothing to resume."""
    caller = await service.caller(Role.OPERATOR)
    process = await work(holdfast.App(), queues=("default",))
    [worker] = of(await caller.get(f"{API}/workers"))
    assert worker["id"] == process.worker.worker_id
    of(await caller.post(f"{API}/workers/{worker['id']}/drain", json={"reason": "an update"}))
    async with asyncio.timeout(10):
        await process.drained()
    of(await caller.post(f"{API}/workers/999999/drain"), 404)
    refused = of(await caller.post(f"{API}/workers/{worker['id']}/resume"), 400)
    assert "only runners are resumed" in refused["detail"]


async def test_a_drained_runner_is_resumed(service: Service) -> None:
    """What changed is audited as it was, also of a runner that is away; a worker cannot be resumed."""
    machine = {"name": "m", "host": "h", "version": "1", "protocols": [1], "slots": 1}
    made = of(await (await service.caller(Role.REGISTRAR)).post("/runner/v1/register", json=machine), 201)
    runner = await service.caller(text=made["token"])
    assert (await runner.post("/runner/v1/leave", json={})).status_code == 204
    caller, worker = await service.caller(Role.OPERATOR), f"{API}/workers/{made['runner']['id']}"
    of(await caller.post(f"{worker}/drain"))
    of(await caller.post(f"{worker}/resume"))
    drained, resumed = [act["detail"] for act in of(await caller.get(worker))["audit"]][1::-1]
    away = {"state": "offline", "draining": False}
    assert drained == {"before": away, "after": away | {"draining": True}}
    assert resumed == {"before": away | {"draining": True}, "after": away}
    of(await caller.post(f"{API}/workers/999999/resume"), 404)


async def test_a_schedule_is_run_paused_and_deleted(
    service: Service, work: Any, db: ThrowawayDatabase
) -> None:
    """Its arguments are in no listing."""
    app = holdfast.App()

    @app.job
    async def greet(name: str) -> str:
        return name

    app.schedule("nightly", greet.job(name="secret"), cron="@daily")
    await work(app)
    caller = await service.caller(Role.OPERATOR)
    listed = await caller.get(f"{API}/schedules")
    assert of(listed)[0]["name"] == "nightly"
    assert "secret" not in listed.text
    made = of(await caller.post(f"{API}/schedules/run", json={"name": "nightly"}), 201)
    ended = of(await caller.get(f"{API}/jobs/{made['job_id']}/wait"))
    assert ended["result"] == "secret"
    for verb in ("pause", "resume", "delete"):
        of(await caller.post(f"{API}/schedules/{verb}", json={"name": "nightly"}))
        if verb == "pause":
            assert await db.value("select paused from holdfast.schedules") is True
    of(await caller.post(f"{API}/schedules/run", json={"name": "nightly"}), 404)
    acts = of(await caller.get(f"{API}/audit", params={"subject": "schedule nightly"}))["acts"]
    resumed, paused = [act["detail"] for act in acts[1:3]]
    assert paused == {"before": {"paused": False}, "after": {"paused": True}}
    assert resumed == {"before": {"paused": True}, "after": {"paused": False}}


async def test_a_run_is_shown_signalled_paused_and_forked(
    service: Service, work: Any, eventually: Any
) -> None:
    """From its tree to its history; a job that is no run is told apart."""
    app = holdfast.App()

    @app.workflow
    async def approve(run: holdfast.Run) -> Any:
        await run.step(_pack)
        return await run.wait_signal("approved")

    @app.job
    async def plain() -> None:
        return None

    await work(app)
    caller = await service.caller(Role.OPERATOR)
    run_id = of(await caller.post(f"{API}/jobs", json={"kind": approve.kind}), 201)["id"]

    async def sleeps() -> bool:
        return bool(of(await caller.get(f"{API}/runs/{run_id}"))["run"]["state"] == "waiting")

    await eventually(sleeps)
    path = f"{API}/runs/{run_id}"
    waiting = of(await caller.get(f"{API}/runs", params={"signal": "approved"}))
    assert [run["id"] for run in waiting["runs"]] == [run_id]
    assert of(await caller.post(f"{path}/pause"))["ids"] == [run_id]
    assert of(await caller.post(f"{path}/resume"))["ids"] == [run_id]
    sent = of(
        await caller.post(f"{path}/signal", json={"name": "approved", "payload": "yes", "key": "k"}), 201
    )
    assert sent["id"]
    assert of(await caller.get(f"{API}/jobs/{run_id}/wait"))["result"] == "yes"
    of(await caller.post(f"{path}/signal", json={"name": "approved"}), 409)
    assert "_pack" in [step["name"] for step in of(await caller.get(f"{path}/history"))["steps"]]
    assert len(of(await caller.get(f"{path}/activities"))["activities"]) >= 1
    forked = of(await caller.post(f"{path}/fork", json={"at": "_pack"}), 201)["id"]
    of(await caller.post(f"{API}/runs/{forked}/cancel"))
    missing = of(await caller.post(f"{path}/fork", json={"at": "unpack"}), 404)
    assert missing["type"] == "urn:holdfast:problem:step-not-found"
    assert missing["facts"]["finished"] == ["_pack", "approved"]
    job_id = of(await caller.post(f"{API}/jobs", json={"kind": "plain"}), 201)["id"]
    assert of(await caller.get(f"{API}/runs/{job_id}"), 409)["type"] == "urn:holdfast:problem:not-a-run"

    acts = of(await caller.get(f"{API}/audit", params={"subject": f"job {run_id}"}))["acts"]
    changes = [act["detail"] for act in acts if act["action"] in ("run.pause", "run.resume")][::-1]
    assert changes == [
        {"before": {"state": "waiting", "paused": False}, "after": {"state": "waiting", "paused": True}},
        {"before": {"state": "waiting", "paused": True}, "after": {"paused": False}},
    ]


async def _pack() -> str:
    return "packed"


async def test_a_token_is_made_listed_and_revoked(service: Service) -> None:
    """Its text is in one answer alone, and what it says of itself is its record."""
    admin = await service.caller(Role.ADMIN)
    order = {"name": "ci", "role": "producer", "expires": 3600}
    made = of(await admin.post(f"{API}/tokens", json=order), 201)
    assert made["text"].startswith("holdfast_")
    assert made["record"]["created_by"] == "a admin"
    of(await admin.post(f"{API}/tokens", json=order), 409)
    of(await admin.post(f"{API}/tokens", json=order | {"name": "x", "role": "runner"}), 400)
    listed = await admin.get(f"{API}/tokens")
    assert [token["name"] for token in of(listed)["tokens"]] == ["ci", "a admin"]
    assert made["text"] not in listed.text
    machine = await service.caller(text=made["text"])
    of(await machine.post(f"{API}/jobs", json={"kind": "x"}), 201)
    of(await machine.get(f"{API}/tokens"), 403)
    of(await admin.post(f"{API}/tokens/{made['record']['id']}/revoke"))
    of(await admin.post(f"{API}/tokens/999999/revoke"), 404)


async def test_the_clock_is_the_databases(service: Service) -> None:
    """Whoever judges a lease asks for it."""
    caller = await service.caller()
    assert of(await caller.get(f"{API}/clock"))["now"].endswith("Z")


async def test_a_scrape_gets_the_numbers(service: Service) -> None:
    """With a token that may read; the text is Prometheus'."""
    viewer = await service.caller(Role.VIEWER)
    scraped = await viewer.get("/metrics")
    assert scraped.headers["content-type"].startswith("text/plain")
    assert "holdfast_jobs_processed_total" in scraped.text
    for job_id in (7, 8):
        of(await viewer.get(f"{API}/jobs/{job_id}"), 404)
    counted = 'holdfast_http_requests_total{method="GET",route="/api/v1/jobs/{job_id}",status="404"} 2.0'
    assert counted in (await viewer.get("/metrics")).text
