"""Jobs over HTTP: enqueued once, listed by pages, shown, waited for."""

from typing import Any

import holdfast
from holdfast.model.token import Role
from tests.web.conftest import Serve


async def test_a_job_is_enqueued_run_and_waited_for(serve: Serve, work: Any) -> None:
    """From a POST to the result of its handler, over HTTP all the way."""
    app = holdfast.App()

    @app.job
    async def add(a: int, b: int) -> int:
        return a + b

    service = await serve(app)
    producer = await service.caller(Role.PRODUCER)
    made = await producer.post("/api/v1/jobs", json={"kind": "add", "args": {"a": 2, "b": 3}})
    assert made.status_code == 201, made.text
    assert made.json()["status"] == "new"
    await work(app)
    ended = await producer.get(f"/api/v1/jobs/{made.json()['id']}/wait")
    assert ended.json() == {
        "id": made.json()["id"],
        "state": "completed",
        "ended": True,
        "result": 5,
        "error": None,
        "reason": None,
    }
