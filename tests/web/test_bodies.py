"""What cannot be used is refused at the door, with the documented problem, and nothing is enqueued."""

from typing import Any

import pytest

from holdfast.errors import DatabaseRefused, DatabaseUnavailable, HoldfastError
from holdfast.model.problem import MEDIA_TYPE, problem_type
from holdfast.model.token import Role
from holdfast.store.database import Database
from holdfast.testing import ThrowawayDatabase
from tests.web.conftest import Service

JOBS = "/api/v1/jobs"
DEEP = b'{"kind": "x", "args": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001

BODIES = {
    "nothing": (b"", 400, "request-malformed"),
    "half of it": (b'{"kind": "x"', 400, "body-invalid"),
    "no JSON": (b"kind=x", 400, "body-invalid"),
    "another type": (b"[]", 400, "body-invalid"),
    "a missing field": (b"{}", 400, "body-invalid"),
    "a misspelt field": (b'{"kind": "x", "prioritty": 1}', 400, "body-invalid"),
    "a number as text": (b'{"kind": "x", "priority": "1"}', 400, "body-invalid"),
    "a huge number": (b'{"kind": "x", "priority": 1' + b"0" * 5000 + b"}", 400, "body-invalid"),
    "a number out of range": (b'{"kind": "x", "priority": 10}', 400, "option-invalid"),
    "NaN": (b'{"kind": "x", "timeout": NaN}', 400, "body-invalid"),
    "a NUL character": (b'{"kind": "a\\u0000b"}', 400, "body-invalid"),
    "a NUL deep inside": (b'{"kind": "x", "args": {"a": ["\\\\\\u0000"]}}', 400, "body-invalid"),
    "bad UTF-8": (b'{"kind": "\xff"}', 400, "body-invalid"),
    "half of a surrogate pair": (b'{"kind": "\\ud800"}', 400, "body-invalid"),
    "a hundred thousand levels": (DEEP, 400, "body-invalid"),
    "arguments of two megabytes": (
        b'{"kind": "x", "args": {"a": "' + b"y" * 2_000_000 + b'"}}',
        413,
        "payload-too-large",
    ),
    "five megabytes": (b" " * 5_000_000, 413, "body-too-large"),
    "a time without its zone": (b'{"kind": "x", "run_at": "2026-03-01T12:00:00"}', 400, "option-invalid"),
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_bad_body_is_refused(name: str, service: Service, db: ThrowawayDatabase) -> None:
    """Each has its status and its type, a sentence for people, and leaves the service well."""
    body, status, kind = BODIES[name]
    caller = await service.caller()
    answer = await caller.post(JOBS, content=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == MEDIA_TYPE
    problem = answer.json()
    assert problem["type"] == f"urn:holdfast:problem:{kind}"
    assert problem["status"] == status
    assert len(problem["detail"]) > 20
    assert await db.value("select count(*) from holdfast.jobs") == 0
    assert (await caller.post(JOBS, json={"kind": "x"})).status_code == 201
    assert not service.probe.seen("request.failed")


async def test_a_length_with_many_zeros_is_no_way_past_the_limit(service: Service) -> None:
    """The number counts, however long it is written."""
    asked = {"name": "build-1", "protocols": [1]}
    registered = await (await service.caller(Role.REGISTRAR)).post("/runner/v1/register", json=asked)
    runner = await service.caller(text=registered.json()["token"])
    headers = {"Content-Type": "application/json", "Content-Length": "00000000015000000"}
    answer = await runner.post("/runner/v1/sync", content=b" " * 15_000_000, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (413, "urn:holdfast:problem:body-too-large")


async def test_a_backslash_before_u0000_is_no_nul(service: Service) -> None:
    """The text \\u0000 itself, told in six characters, is taken."""
    answer = await (await service.caller()).post(JOBS, content=b'{"kind": "x", "args": {"a": "\\\\u0000"}}')
    assert answer.status_code == 201, answer.text


ADDRESSES = {
    "an unknown route": ("GET", "/api/v1/jibs", 404),
    "an id that is no number": ("GET", f"{JOBS}/one", 404),
    "an id below one": ("GET", f"{JOBS}/0", 400),
    "an id beyond bigint": ("GET", f"{JOBS}/99999999999999999999", 400),
    "another method": ("PATCH", JOBS, 405),
    "a NUL in the query": ("GET", f"{JOBS}?kind=a%00b", 400),
    "a state that is none": ("GET", f"{JOBS}?state=asleep", 400),
    "a page of nothing": ("GET", f"{JOBS}?limit=0", 400),
    "a page of too much": ("GET", f"{JOBS}?limit=1000000", 400),
    "a time that is none": ("GET", f"{JOBS}?since=yesterday", 400),
}


@pytest.mark.parametrize("name", ADDRESSES)
async def test_a_bad_address_is_refused(name: str, service: Service) -> None:
    """So are parameters of the wrong type."""
    method, path, status = ADDRESSES[name]
    answer = await (await service.caller()).request(method, path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert answer.json()["detail"]
    assert not service.probe.seen("request.failed")


async def test_a_time_that_utc_does_not_have_is_named(service: Service) -> None:
    """It has a zone, but PostgreSQL could only say that some value of a statement is wrong."""
    answer = await (await service.caller()).get(JOBS, params={"ended_since": "0001-01-01T00:00:00+12:00"})
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:holdfast:problem:option-invalid")
    wanted = "it lies outside the years 1 to 9999 in UTC"
    assert answer.json()["detail"] == f"ended_since is '0001-01-01T00:00:00+12:00': {wanted}"


async def test_bad_utf8_in_an_address_harms_nobody(service: Service) -> None:
    """It finds nothing."""
    answer = await (await service.caller()).get(f"{JOBS}?kind=%ff%fe")
    assert answer.json() == {"jobs": [], "next": None}


async def test_a_database_that_is_away_is_a_503(service: Service) -> None:
    """It says when to come again, and the log says what is wrong."""
    await service.token(Role.VIEWER)
    caller = await service.caller(text="holdfast_any")
    await service.db.database.close()
    try:
        answer = await caller.get(JOBS)
    finally:
        await service.db.database.open()
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["type"] == "urn:holdfast:problem:database-unavailable"
    assert service.probe.seen("request.failed")


WHERE = "at postgresql://ada@10.0.0.7/shop"


@pytest.mark.parametrize("kind", [DatabaseUnavailable, DatabaseRefused])
async def test_where_the_database_is_is_told_to_nobody_without_a_token(
    service: Service, monkeypatch: pytest.MonkeyPatch, kind: type[HoldfastError]
) -> None:
    """Neither on the way of the framework nor on the express lane; the log has it, and who may come in."""
    caller, anybody = await service.caller(Role.VIEWER), await service.caller(text="holdfast_any")
    error = kind(f"PostgreSQL lets nobody in {WHERE}")

    async def away(*_: Any) -> Any:
        raise error

    monkeypatch.setattr("holdfast.web.gate.REMEMBERED", 3600.0)
    assert (await caller.get(JOBS)).status_code == 200
    monkeypatch.setattr(Database, "run", away)
    refusals = [await anybody.get(JOBS), await anybody.post("/runner/v1/claim", json={"count": 1})]
    for refusal in refusals:
        assert (refusal.status_code, WHERE in refusal.text) == (503, False)
        assert refusal.json()["detail"].startswith("the database cannot be reached")
        assert refusal.json()["type"] == problem_type(kind)
    assert [fields["error"] for fields in service.probe.seen("request.failed")] == [error, error]
    answer = await caller.get("/api/v1/jobs/1/events")
    assert (answer.status_code, answer.json()["detail"]) == (503, str(error))
