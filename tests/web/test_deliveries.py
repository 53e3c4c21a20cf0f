"""Deliveries over HTTP: seen by viewers, made again by operators."""

import json

import pytest

from holdfast.client.operator import Operator
from holdfast.model.token import Role
from tests.web.conftest import Service

MADE = """
insert into holdfast.deliveries (endpoint_id, job_id, event, at, body, created_at)
values (1, 42, 'job.failed', holdfast.now(), '{}', holdfast.now())
"""


async def test_a_dead_delivery_is_listed_and_made_again(service: Service) -> None:
    """Under way it is not made twice, and one that never was is not found."""
    await Operator(service.db.database, "me").deliveries.add("hub", "https://example.com")
    await service.db.fetch(MADE)
    operator = await service.caller(Role.OPERATOR)
    page = (await operator.get("/api/v1/deliveries", params={"endpoint": "hub", "state": "dead"})).json()
    assert [(one["id"], one["event"], one["job_id"]) for one in page["deliveries"]] == [(1, "job.failed", 42)]
    again = await operator.post("/api/v1/deliveries/1/redeliver", json={"reason": "they lost it"})
    assert again.status_code == 200
    [carrier] = (await operator.get("/api/v1/deliveries")).json()["deliveries"]
    assert (carrier["state"], carrier["carrier_id"]) == ("waiting", again.json()["job_id"])
    assert (await operator.post("/api/v1/deliveries/1/redeliver")).status_code == 409
    assert (await operator.post("/api/v1/deliveries/7/redeliver")).status_code == 404
    audited = await service.db.fetch("select actor, reason from holdfast.audit_log order by id desc limit 1")
    assert audited == [("a operator", "they lost it")]


async def test_an_admin_says_over_http_who_is_told(service: Service) -> None:
    """The secret is shown once and not in the audit log, which has each act; the name is good for one."""
    admin = await service.caller(Role.ADMIN)
    asked = {"name": "hub", "url": "https://example.com/in", "queues": ["builds"], "reason": "they asked"}
    made = await admin.post("/api/v1/deliveries/endpoints", json=asked)
    assert (made.status_code, made.json()["secret"][:4]) == (201, "hfs_")
    assert (await admin.post("/api/v1/deliveries/endpoints", json=asked)).status_code == 409
    listed = (await admin.get("/api/v1/deliveries/endpoints")).json()
    assert [(one["name"], one["url"], one["queues"]) for one in listed] == [("hub", asked["url"], ["builds"])]
    assert "secret" not in listed[0]
    removed = await admin.post("/api/v1/deliveries/endpoints/remove", json={"name": "hub"})
    assert removed.status_code == 200
    assert (await admin.post("/api/v1/deliveries/endpoints/remove", json={"name": "hub"})).status_code == 404
    acts = await service.db.fetch("select action, actor, detail::text from holdfast.audit_log order by id")
    told = [(action, actor) for action, actor, _ in acts if action.startswith("endpoint")]
    assert told == [("endpoint.add", "a admin"), ("endpoint.remove", "a admin")]
    assert not any(made.json()["secret"] in detail for _, _, detail in acts)
    added, gone = (json.loads(detail) for action, _, detail in acts if action.startswith("endpoint"))
    assert gone == {"before": added["after"]}


async def test_the_audit_log_tells_no_viewer_what_is_secret_in_an_address(service: Service) -> None:
    """It says where an endpoint is; the rest of the address may be all that keeps others out."""
    admin, viewer = await service.caller(Role.ADMIN), await service.caller(Role.VIEWER)
    asked = {"name": "hub", "url": "https://example.com/in/T0P?key=s3cret"}
    await admin.post("/api/v1/deliveries/endpoints", json=asked)
    await admin.post("/api/v1/deliveries/endpoints/remove", json={"name": "hub"})
    told = await viewer.get("/api/v1/audit", params={"subject": "endpoint hub"})
    removed, added = told.json()["acts"]
    assert added["detail"]["after"]["url"] == "https://example.com:443"
    assert removed["detail"] == {"before": added["detail"]["after"]}
    assert "T0P" not in told.text
    assert "s3cret" not in told.text


@pytest.mark.parametrize("url", ["ftp://example.com", "no address", "https://"])
async def test_an_address_that_is_none_is_refused(service: Service, url: str) -> None:
    """It is wrong use, not a fault."""
    admin = await service.caller(Role.ADMIN)
    made = await admin.post("/api/v1/deliveries/endpoints", json={"name": "hub", "url": url})
    assert (made.status_code, made.headers["content-type"]) == (400, "application/problem+json")
