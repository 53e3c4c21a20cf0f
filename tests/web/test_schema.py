"""The schema is kept: whatever is sent, the answer is one that it documents."""

import asyncio
from collections.abc import Callable
from typing import Any

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast.client.job_verbs import EVERY_JOB
from holdfast.client.operator import Operator
from holdfast.model.token import Role
from holdfast.rules.liveness import Intervals
from tests.web.conftest import Serve, Service

EXAMPLES = 6
PROTOCOL, REGISTER = "/runner/v1/", "/runner/v1/register"
SHOW, WAIT = "/api/v1/jobs/{job_id}", "/api/v1/jobs/{job_id}/wait"
CHECKS = (
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


def attacked(operation: Any, url: str, token: str) -> None:
    """Send an operation whatever its part of the schema allows, and much that it does not."""
    headers = {"Authorization": f"Bearer {token}"}
    for mode in schemathesis.GenerationMode:

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        def attack(case: Any) -> None:
            case.call_and_validate(base_url=url, headers=headers, checks=CHECKS, timeout=30)

        attack()


async def test_every_operation_answers_as_documented(serve: Serve) -> None:
    """No 5xx, no undocumented status, no body of another shape, for data that fits and data that does not."""
    service = await serve(rate=1_000_000, intervals=Intervals(sync_wait=0.05))
    assert await broken(service) == []
    answers = [(told["route"], told["status"]) for told in service.probe.seen("request.ended")]
    spoken = {route for route, status in answers if route.startswith(PROTOCOL) and status < 300}
    assert spoken >= {REGISTER, f"{PROTOCOL}sync", f"{PROTOCOL}claim"}


async def test_an_undocumented_status_is_found(serve: Serve) -> None:
    """Where the schema does not tell of a 404, the one that comes is a fault."""

    def forget(described: dict[str, Any]) -> None:
        described["paths"] = {SHOW: described["paths"][SHOW]}
        del described["paths"][SHOW]["get"]["responses"]["404"]

    assert "404" in "".join(await broken(await serve(), forget))


async def test_a_body_that_is_too_large_is_documented_wherever_one_is_taken(service: Service) -> None:
    """Also where no error of the route itself has that status."""
    caller = await service.caller(Role.ADMIN)
    described = (await caller.get("/schema")).json()["paths"]
    taken = {
        path: set(operation["responses"])
        for path, methods in described.items()
        for operation in methods.values()
        if "requestBody" in operation
    }
    assert [path for path, statuses in taken.items() if "413" not in statuses] == []
    answer = await caller.post("/api/v1/queues/pause", content=b" " * 5_000_000)
    assert str(answer.status_code) in taken["/api/v1/queues/pause"] - {"200"}


async def test_an_artifact_that_is_there_already_is_documented(service: Service) -> None:
    """It is 200, where a new one is 201."""
    described = (await (await service.caller()).get("/schema")).json()["paths"]
    kept = described["/runner/v1/assignments/{job}/{attempt}/artifacts/{name}"]["put"]["responses"]
    assert {"200", "201"} <= kept.keys()


async def runners_token(service: Service, admins: str) -> str:
    """The token of a runner that holds job 1: admins may not speak its protocol."""
    admin = await service.caller(text=admins)
    job = {"kind": "command", "args": {"argv": ["true"]}}
    assert (await admin.post("/api/v1/jobs", json=job)).json()["id"] == 1
    machine = {"name": "m", "protocols": [1], "slots": 100}
    token: str = (await admin.post(REGISTER, json=machine)).json()["token"]
    runner = await service.caller(text=token)
    assert (await runner.post(f"{PROTOCOL}claim", json={})).json()["offers"]
    assert (await runner.post(f"{PROTOCOL}assignments/1/1/start", json={})).status_code == 200
    return token


async def broken(service: Service, change: Callable[[dict[str, Any]], None] = lambda _: None) -> list[str]:
    """The operations that do not keep to the schema, and how, the schema being changed before."""
    token, _ = await service.token(Role.ADMIN)
    runner = await runners_token(service, token)
    described = (await (await service.caller()).get("/schema")).json()
    change(described)
    found = []
    for each in schemathesis.openapi.from_dict(described).get_all_operations():
        assert isinstance(each, Ok), "the schema itself is wrong"
        operation = each.ok()
        if operation.path == WAIT:
            # Whoever hits upon one that lives would wait for half a minute, each time.
            await Operator(service.db.database, "ada").jobs.cancel_many(EVERY_JOB)
            await service.db.fetch("delete from holdfast.live_jobs")
        try:
            shown = runner if operation.path.startswith(PROTOCOL) and operation.path != REGISTER else token
            await asyncio.to_thread(attacked, operation, service.url, shown)
        except FailureGroup as failures:
            found.append(f"{operation.label}: {failures.exceptions}")
    return found
