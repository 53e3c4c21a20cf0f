"""Deliveries over HTTP: seen by viewers, made again by operators."""

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
