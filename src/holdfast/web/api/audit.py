"""What operators did, and the time by which all is judged."""

from __future__ import annotations

from litestar import Router
from litestar.params import FromQuery

from holdfast import errors
from holdfast.client.wire.audit import AuditPage, Clock
from holdfast.web.api.routes import Before, Limit, look, next_page
from holdfast.web.given import GivenOperator


@look("/audit", raises=(errors.DatabaseRefused,))
async def list_acts(
    operator: GivenOperator,
    subject: FromQuery[str | None] = None,
    actor: FromQuery[str | None] = None,
    limit: Limit = 50,
    before: Before = None,
) -> AuditPage:
    """List what operators did; *subject* is such as `job 42` or `queue mail`."""
    found = list(await operator.audit(subject=subject, actor=actor, before=before, limit=limit))
    return AuditPage(found, next_page(found, limit))


@look("/clock")
async def read_clock(operator: GivenOperator) -> Clock:
    """Tell the database's time, by which leases and due times are judged."""
    return Clock(await operator.now())


router = Router("/", route_handlers=[list_acts, read_clock], tags=["audit"])
