"""`holdfast serve`: a process that others ask over HTTP."""

import asyncio
import signal
from typing import Any

import httpx

from holdfast.client.operator import Operator
from holdfast.model.token import Role
from holdfast.testing import ThrowawayDatabase
from tests.cli.conftest import free_port


async def test_serve_answers_until_it_is_told_to_stop(start_holdfast: Any, here: dict[str, str]) -> None:
    """It leads, checks jobs against the application, lets a long poll go and ends with 0."""
    program = await start_holdfast("serve", "--app", "shop:app", **here)
    address = (await program.probe.wait_for("web.served"))["address"]
    async with httpx.AsyncClient(base_url=address, trust_env=False) as caller:
        assert (await caller.get("/livez")).text == "ok\n"
        made = await caller.post("/api/v1/jobs", json={"kind": "greet", "args": {"name": "you"}})
        assert made.status_code == 201, made.text
        assert (await caller.post("/api/v1/jobs", json={"kind": "greet"})).status_code == 400
        async with asyncio.timeout(10):
            while (await caller.get("/readyz")).status_code != 200:  # noqa: ASYNC110 - it stands for leader
                await asyncio.sleep(0.05)
        sent = asyncio.Event()

        async def trace(event: str, _facts: Any) -> None:
            if event == "http11.send_request_body.complete":
                sent.set()

        path = f"/api/v1/jobs/{made.json()['id']}/wait"
        waiting = asyncio.create_task(caller.get(path, timeout=30, extensions={"trace": trace}))
        await sent.wait()
        # The answer to a later request, on another connection: the long poll has arrived as well.
        await caller.get("/livez")
        program.send(signal.SIGTERM)
        assert (await waiting).json()["ended"] is False
    assert await program.ended() == 0


async def test_serve_beyond_this_machine_takes_a_token(
    start_holdfast: Any, here: dict[str, str], db: ThrowawayDatabase
) -> None:
    """Without one it ends with 2 and says what to do; with one it serves, to whoever shows it."""
    alone = await start_holdfast("serve", "--host", "0.0.0.0", **here)  # noqa: S104 - refused
    assert await alone.ended() == 2
    assert "make one with `holdfast tokens create`" in "".join(alone.lines)
    made = await Operator(db.database, "test").tokens.create("ada", Role.VIEWER)
    # No address that others can reach, but none either that is known for this machine's own.
    program = await start_holdfast("serve", "--host", "127.0.0.2", **here)
    address = (await program.probe.wait_for("web.served"))["address"]
    async with httpx.AsyncClient(base_url=address, trust_env=False) as caller:
        assert (await caller.get("/api/v1/jobs")).status_code == 401
        shown = {"Authorization": f"Bearer {made.text}"}
        assert (await caller.get("/api/v1/jobs", headers=shown)).status_code == 200


async def test_a_port_that_is_taken_is_one_sentence(
    start_holdfast: Any, holdfast_command: Any, here: dict[str, str]
) -> None:
    """Exit code 2, as for every setting that cannot be used."""
    port = str(free_port())
    program = await start_holdfast("serve", "--port", port, **here)
    await program.probe.wait_for("web.served")
    second = await holdfast_command("serve", "--port", port, **here)
    assert second.code == 2
    assert f"the service cannot listen on 127.0.0.1 port {port}" in second.err
    assert "already in use: choose another port with --port" in second.err
