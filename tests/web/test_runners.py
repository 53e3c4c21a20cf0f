"""The runner protocol over real HTTP."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import httpx

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.model.token import Role
from tests.web.conftest import Service

MACHINE = {"name": "build-1", "protocols": [1], "slots": 2}


async def register(service: Service, **options: Any) -> httpx.AsyncClient:
    """Register a runner; answers a client with its token."""
    registrar = await service.caller(Role.REGISTRAR)
    answer = await registrar.post("/runner/v1/register", json=MACHINE | options)
    assert answer.status_code == 201, answer.text
    return await service.caller(text=answer.json()["token"])


async def enqueue(client: holdfast.Client, args: str = '{"argv": ["true"]}', **options: Any) -> int:
    """Enqueue a command."""
    return (await client.enqueue(JobRequest("command", args), **options)).id


async def test_a_runner_registers_claims_and_finishes(service: Service, client: holdfast.Client) -> None:
    """The whole way of a command, as a runner in any language goes it."""
    runner = await register(service)
    job_id = await enqueue(client)
    [offer] = (await runner.post("/runner/v1/claim", json={"number": 1})).json()["offers"]
    place = f"/runner/v1/assignments/{offer['job']}/{offer['attempt']}"
    for number, (step, state) in enumerate((("accept", "claimed"), ("start", "running")), 2):
        answer = await runner.post(f"{place}/{step}", json={"number": number})
        assert (answer.status_code, answer.json()["state"]) == (200, state)
    spec = await runner.get(f"{place}/spec")
    assert sha256(spec.content).hexdigest() == offer["spec_sha256"] == spec.headers["etag"].strip('"')
    ended = {"number": 4, "outcome": "completed", "result": {"exit_code": 0}}
    assert (await runner.post(f"{place}/finish", json=ended)).json() == {
        "outcome": "completed",
        "repeated": False,
    }
    assert (await runner.post(f"{place}/finish", json=ended)).json() == {
        "outcome": "completed",
        "repeated": True,
    }
    assert await client.wait(job_id, timeout=5) == {"exit_code": 0}
