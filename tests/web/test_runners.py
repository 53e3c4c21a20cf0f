"""The runner protocol over real HTTP."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any

import httpx
import pytest

import holdfast
from holdfast.app.handler import JobRequest
from holdfast.model.token import Role
from holdfast.runners.desk import Desk
from tests.web.conftest import Serve, Service

MACHINE = {"name": "build-1", "protocols": [1], "slots": 2}


async def register(service: Service, **options: Any) -> httpx.AsyncClient:
    """Register a runner; answers a client with its token."""
    asked = MACHINE | options
    text, _ = await service.token(Role.REGISTRAR, f"for {asked['name']}")
    answer = await (await service.caller(text=text)).post("/runner/v1/register", json=asked)
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
    for number, (step, state) in enumerate((("accept", "accepted"), ("start", "running")), 2):
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


async def offered(client: holdfast.Client, runner: httpx.AsyncClient) -> Any:
    """A command that was offered to a runner, and where to speak of it."""
    await enqueue(client)
    [offer] = (await runner.post("/runner/v1/claim", json={})).json()["offers"]
    return offer, f"/runner/v1/assignments/{offer['job']}/{offer['attempt']}"


def problem(answer: httpx.Response) -> tuple[int, str]:
    """Status and type of a problem."""
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["type"].rpartition(":")[2]


async def test_a_stale_call_is_told_the_truth(service: Service, client: holdfast.Client) -> None:
    """409 says where the job stands, who has it and what became of the attempt."""
    runner, other = await register(service), await register(service, name="build-2")
    _, place = await offered(client, runner)
    await runner.post(f"{place}/start", json={})
    await runner.post("/runner/v1/sync", json={"held": []})
    [again] = (await other.post("/runner/v1/claim", json={})).json()["offers"]
    assert again["attempt"] == 2
    for step in ("accept", "start", "progress", "finish"):
        answer = await runner.post(
            f"{place}/{step}", json={"outcome": "completed"} if step == "finish" else {}
        )
        assert problem(answer) == (409, "assignment-stale")
        facts = {name: answer.json()["facts"][name] for name in ("state", "now", "runner", "outcome")}
        assert facts == {"state": "claimed", "now": 2, "runner": "build-2", "outcome": "lost"}
    assert problem(await runner.get(f"{place}/spec")) == (409, "assignment-stale")
    kept = "select jsonb_array_length(evidence) from holdfast.assignments where attempt = 1"
    assert await service.db.value(kept) == 1


async def test_an_unknown_job_is_404(service: Service) -> None:
    """There is no truth about it."""
    runner = await register(service)
    answer = await runner.post("/runner/v1/assignments/9999/1/start", json={})
    assert problem(answer) == (404, "job-not-found")


@pytest.mark.parametrize("role", [None, Role.VIEWER, Role.PRODUCER, Role.OPERATOR])
async def test_nobody_else_speaks_the_protocol(service: Service, role: Role | None) -> None:
    """Missing and wrong tokens are 401, those of people 403."""
    await service.token(Role.ADMIN)
    caller = await service.caller(role, text="holdfast_wrong")
    expected = (401, "token-invalid") if role is None else (403, "access-denied")
    for path, body in (("register", MACHINE), ("sync", {}), ("claim", {}), ("assignments/1/1/start", {})):
        assert problem(await caller.post(f"/runner/v1/{path}", json=body)) == expected


async def test_a_registration_token_registers_and_nothing_else(service: Service) -> None:
    """It is no runner."""
    caller = await service.caller(Role.REGISTRAR)
    assert problem(await caller.post("/runner/v1/sync", json={})) == (403, "access-denied")


async def test_a_runner_registers_again_by_its_own_token_and_under_its_own_name(service: Service) -> None:
    """A new term; the former token is dead; another name is refused."""
    runner = await register(service)
    other = {**MACHINE, "name": "build-9"}
    assert problem(await runner.post("/runner/v1/register", json=other)) == (403, "access-denied")
    answer = await runner.post("/runner/v1/register", json=MACHINE)
    assert (answer.status_code, answer.json()["runner"]["term"]) == (201, 2)
    former = await runner.post("/runner/v1/sync", json={})
    assert problem(former) == (401, "runner-superseded")
    # So says every server, whether it knows the older token or not.
    service.server.gate.notified("tokens", "")
    assert problem(await runner.post("/runner/v1/sync", json={})) == (401, "runner-superseded")
    fresh = await service.caller(text=answer.json()["token"])
    assert (await fresh.post("/runner/v1/sync", json={})).status_code == 200


async def test_a_runner_that_was_forgotten_is_told_to_show_another_token(service: Service) -> None:
    """Its own token is then as good as none, so that it tries the one it was given: 403 would be the end."""
    runner = await register(service)
    await service.db.fetch("delete from holdfast.workers")
    assert problem(await runner.post("/runner/v1/register", json=MACHINE)) == (401, "token-invalid")


async def test_the_token_of_an_assignment_is_good_for_it_alone(
    service: Service, client: holdfast.Client
) -> None:
    """It reports on its own, not on others, accepts nothing, and is dead when the attempt has ended."""
    runner = await register(service)
    offer, place = await offered(client, runner)
    own = await service.caller(text=offer["token"])
    assert problem(await own.post(f"{place}/accept", json={})) == (403, "access-denied")
    await runner.post(f"{place}/accept", json={})
    assert (await own.post(f"{place}/start", json={})).json()["state"] == "running"
    assert (await own.get(f"{place}/spec")).status_code == 200
    _, elsewhere = await offered(client, runner)
    assert problem(await own.post(f"{elsewhere}/start", json={})) == (403, "assignment-foreign")
    assert problem(await own.post("/runner/v1/sync", json={})) == (403, "access-denied")
    assert (await own.post(f"{place}/finish", json={"outcome": "completed"})).status_code == 200
    assert problem(await own.post(f"{place}/progress", json={})) == (401, "token-invalid")


@pytest.mark.parametrize("end", ["finish", "loss"])
async def test_the_token_of_an_assignment_ends_with_it_on_every_server(
    serve: Serve, client: holdfast.Client, end: str
) -> None:
    """Also where it was shown a moment ago: not even the rest of a log comes in by it."""
    first, second = await serve(), await serve()
    runner = await register(first)
    offer, place = await offered(client, runner)
    await runner.post(f"{place}/start", json={})
    programs = [await server.caller(text=offer["token"]) for server in (first, second)]
    for offset, program in enumerate(programs):
        headers = {"Holdfast-Offset": str(offset)}
        assert (await program.patch(f"{place}/logs/stdout", content=b"x", headers=headers)).is_success
    if end == "finish":
        await runner.post(f"{place}/finish", json={"outcome": "completed"})
    else:
        await runner.post("/runner/v1/sync", json={"held": []})
    for program in programs:
        for offset in (1, 2):
            headers = {"Holdfast-Offset": str(offset)}
            late = await program.patch(f"{place}/logs/stdout", content=b"x", headers=headers)
            assert problem(late) == (401, "token-invalid")
        assert problem(await program.post(f"{place}/finish", json={"outcome": "completed"})) == (
            401,
            "token-invalid",
        )


async def test_a_program_at_work_is_not_hurt_by_those_who_guess(
    serve: Serve, client: holdfast.Client
) -> None:
    """Nor do those count as guesses who show a token that was good until its assignment ended."""
    service = await serve(failures_burst=2.0, failures_rate=0.01)
    runner = await register(service)
    offer, place = await offered(client, runner)
    program = await service.caller(text=offer["token"])
    assert (await program.post(f"{place}/start", json={})).is_success
    guesser = await service.caller(text="holdfast_wrong")
    guesses = [await guesser.post(f"{place}/progress", json={}) for _ in range(3)]
    assert [guess.status_code for guess in guesses] == [401, 401, 429]
    assert (await program.post(f"{place}/progress", json={})).is_success
    await runner.post(f"{place}/finish", json={"outcome": "completed"})
    assert [(await program.post(f"{place}/progress", json={})).status_code for _ in range(2)] == [401, 429]


async def test_who_shows_wrong_tokens_does_not_shut_out_the_next_assignment_of_others(
    serve: Serve, client: holdfast.Client
) -> None:
    """Its token was never shown before, and comes from the address of somebody who guesses."""
    service = await serve(failures_burst=2.0, failures_rate=0.01)
    runner = await register(service)
    guesser = await service.caller(text="holdfast_wrong")
    guesses = [await guesser.post("/runner/v1/sync", json={}) for _ in range(4)]
    assert [guess.status_code for guess in guesses] == [401, 401, 429, 429]
    offer, place = await offered(client, runner)
    program = await service.caller(text=offer["token"])
    assert (await program.post(f"{place}/start", json={})).is_success


async def test_a_runner_that_needs_no_token_shuts_nobody_out(service: Service) -> None:
    """Where no token was made for anybody, the one that a runner gets changes nothing for others."""
    anybody = await service.caller()
    assert (await anybody.post("/runner/v1/register", json=MACHINE)).status_code == 201
    assert (await anybody.get("/api/v1/jobs")).status_code == 200
    await service.token(Role.VIEWER)
    assert (await anybody.get("/api/v1/jobs")).status_code == 401


async def test_a_runner_that_is_too_old_is_told_so(service: Service) -> None:
    """426 with what both sides speak."""
    caller = await service.caller(Role.REGISTRAR)
    answer = await caller.post("/runner/v1/register", json=MACHINE | {"protocols": [7, 8]})
    assert problem(answer) == (426, "protocol-unsupported")
    assert "update the older of the two" in answer.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b'{"free": -1}', b'{"free": "2"}', b'{"unknown": 1}', b'{"held": [{"job": 1}]}',
        b'{"number": 0}', b'{"held": [{"job": 1, "attempt": 1, "state": "resting"}]}', b'{"wait": 1e9}',
        b'{"held": [{"job": 99999999999999999999, "attempt": 1, "state": "running"}]}',
        b'{"number": "\\u0000"}',
        b"\xff\xfe", b"[" * 100_000,
    ],
)  # fmt: skip
async def test_a_malformed_sync_is_refused_and_changes_nothing(service: Service, body: bytes) -> None:
    """400 that names what is wrong; the next one is answered as ever."""
    runner = await register(service)
    answer = await runner.post("/runner/v1/sync", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert (await runner.post("/runner/v1/sync", json={})).status_code == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a b"},
        {"name": "build-1\n"},
        {"slots": 0},
        {"slots": 1001},
        {"capacity": {"q": -1}},
        {"protocols": "1"},
    ],
)
async def test_a_wrong_registration_makes_no_runner(service: Service, wrong: Any) -> None:
    """400, and nothing is stored."""
    caller = await service.caller(Role.REGISTRAR)
    assert (await caller.post("/runner/v1/register", json=MACHINE | wrong)).status_code == 400
    assert await service.db.value("select count(*) from holdfast.workers") == 0


async def test_a_spec_that_was_tampered_with_is_not_handed_out(
    service: Service, client: holdfast.Client
) -> None:
    """The hash that was taken at the enqueue decides."""
    runner = await register(service)
    _, place = await offered(client, runner)
    await service.db.fetch("""update holdfast.jobs set args = '{"argv": ["rm", "-r", "/"]}'""")
    assert problem(await runner.get(f"{place}/spec")) == (409, "spec-invalid")


async def test_the_first_bytes_of_an_artifact_stay(service: Service, client: holdfast.Client) -> None:
    """New 201, the same again 200, others 409; and none without the attempt."""
    runner = await register(service)
    _, place = await offered(client, runner)
    for content, status in ((b"one", 201), (b"one", 200), (b"two", 409)):
        assert (await runner.put(f"{place}/artifacts/out/report.txt", content=content)).status_code == status
    await runner.post(f"{place}/finish", json={"outcome": "completed"})
    assert problem(await runner.put(f"{place}/artifacts/late.txt", content=b"x")) == (409, "assignment-stale")
    rows = await service.db.fetch("select name, size, data from holdfast.artifacts")
    assert rows == [("out/report.txt", 3, b"one")]


async def test_an_attempt_leaves_no_files_without_end(service: Service, client: holdfast.Client) -> None:
    """413 with the documented problem, once a hundred are there."""
    runner = await register(service)
    offer, place = await offered(client, runner)
    await service.db.fetch(
        "insert into holdfast.artifacts (job_id, attempt, name, size, sha256, data, created_at) "
        "select $1, 1, 'file ' || n, 1, '', 'x', holdfast.now() from generate_series(1, 99) n",
        offer["job"],
    )
    assert (await runner.put(f"{place}/artifacts/last.txt", content=b"x")).status_code == 201
    answer = await runner.put(f"{place}/artifacts/more.txt", content=b"x")
    assert problem(answer) == (413, "artifacts-too-many")
    assert answer.json()["facts"]["count"] == 100


async def test_an_end_waits_for_its_logs(service: Service, client: holdfast.Client) -> None:
    """409 says what the server has; with the rest, or the word that it is lost, the end is accepted."""
    runner = await register(service)
    _, place = await offered(client, runner)
    ended = {"outcome": "completed", "logs": {"stdout": {"size": 5, "sha256": sha256(b"hello").hexdigest()}}}
    answer = await runner.post(f"{place}/finish", json=ended)
    assert problem(answer) == (409, "logs-incomplete")
    assert (answer.json()["facts"]["stream"], answer.json()["facts"]["size"]) == ("stdout", 0)
    await runner.patch(f"{place}/logs/stdout", content=b"hello", headers={"Holdfast-Offset": "0"})
    assert (await runner.post(f"{place}/finish", json=ended)).json()["outcome"] == "completed"


async def test_a_runner_leaves_with_empty_hands(service: Service, client: holdfast.Client) -> None:
    """409 while it holds something, then 204."""
    runner = await register(service)
    _, place = await offered(client, runner)
    await runner.post(f"{place}/accept", json={})
    assert problem(await runner.post("/runner/v1/leave", json={})) == (409, "runner-holding")
    await runner.post(f"{place}/finish", json={"outcome": "released"})
    assert (await runner.post("/runner/v1/leave", json={"number": 9})).status_code == 204


async def test_a_server_that_stops_answers_those_who_wait(service: Service) -> None:
    """A stop does not have to wait for their patience."""
    runner = await register(service)
    waiting = asyncio.create_task(runner.post("/runner/v1/sync", json={"free": 1, "wait": 30}))
    desk: Desk = service.server.application.state.desk
    async with asyncio.timeout(20):
        while not desk.dispatcher.waiting:  # noqa: ASYNC110 - held back, it says nothing
            await asyncio.sleep(0.005)
    async with asyncio.timeout(10):
        await service.server.stop()
        assert (await waiting).status_code == 200


async def test_the_service_outlives_its_restart_for_its_runners(serve: Any, client: holdfast.Client) -> None:
    """What a runner holds it still holds before another server process, by the same token."""
    first: Service = await serve()
    runner = await register(first)
    _, place = await offered(client, runner)
    await runner.post(f"{place}/start", json={})
    await first.server.stop()
    second: Service = await serve()
    again = await second.caller(text=runner.headers["authorization"].removeprefix("Bearer "))
    assert (await again.post(f"{place}/finish", json={"outcome": "completed"})).json()[
        "outcome"
    ] == "completed"


async def test_the_audit_log_knows_where_a_runner_came_from(service: Service) -> None:
    """A registration is an act like any other: who, in which term, from which address."""
    await register(service)
    reader = await service.caller(Role.VIEWER)
    [act] = (await reader.get("/api/v1/audit", params={"subject": "worker 1"})).json()["acts"]
    assert (act["action"], act["address"], act["detail"]["after"]["term"]) == (
        "runner.register",
        "127.0.0.1",
        1,
    )
    assert "before" not in act["detail"]


async def test_the_audit_log_knows_what_a_registration_has_changed(service: Service) -> None:
    """The former term with its token, which ended, and the new one."""
    runner = await register(service, labels=["gpu"], version="1.0")
    assert (await runner.post("/runner/v1/register", json=MACHINE | {"slots": 3})).status_code == 201
    reader = await service.caller(Role.VIEWER)
    again, first = (await reader.get("/api/v1/audit", params={"subject": "worker 1"})).json()["acts"]
    before, after = again["detail"]["before"], again["detail"]["after"]
    assert before == first["detail"]["after"]
    assert (before["term"], before["labels"], before["version"], before["slots"]) == (1, ["gpu"], "1.0", 2)
    assert (after["term"], after["labels"], after["version"], after["slots"]) == (2, [], "", 3)
    valid = "select array_agg(id) from holdfast.tokens where role = 'runner' and revoked_at is null"
    assert await service.db.value(valid) == [after["token"]]


async def test_a_runner_may_have_the_longest_kind_that_a_job_may_have(service: Service) -> None:
    """Workers take it; refused, the runner would run nothing at all."""
    caller = await service.caller()
    for length, status in ((200, 201), (201, 400)):
        told = await caller.post("/runner/v1/register", json={**MACHINE, "kinds": ["k" * length]})
        assert told.status_code == status
