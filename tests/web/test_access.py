"""Who may do what: every route against every role, and what is done against those who guess."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler

from holdfast.client.operator import Operator
from holdfast.client.token_operator import token_hash
from holdfast.errors import SettingInvalid
from holdfast.model.token import Right, Role
from holdfast.rules.access import allows
from holdfast.store import tokens
from holdfast.store.runners import NewRunner, attach_token, register_runner
from holdfast.store.statement import Statement
from holdfast.store.tokens import Grant, create_token
from holdfast.testing import Clock, ThrowawayDatabase
from holdfast.web import gate
from tests.web.conftest import Serve, Service
from tests.web.rights import NOTHING, OPEN, RIGHTS

GIVEN = [Role.ADMIN, Role.OPERATOR, Role.PRODUCER, Role.VIEWER, Role.REGISTRAR]


def routes(application: Litestar) -> Iterator[tuple[str, str, Right | None]]:
    """Every method and path of the service, with the right that it asks for."""
    for route in application.routes:
        for handler in getattr(route, "route_handlers", ()):
            assert isinstance(handler, HTTPRouteHandler)
            for method in sorted(handler.http_methods - {"OPTIONS", "HEAD"}):
                yield method, route.path_format, handler.opt.get("right")


def filled(path: str) -> str:
    """A path with something in the place of each parameter, such as no row has."""
    # The token of an assignment is good for attempt 1 of job 1 alone.
    for name, value in (("{name}", "nothing"), ("{stream}", "stdout"), ("{job}", "1"), ("{attempt}", "1")):
        path = path.replace(name, value)
    while "{" in path:
        before, _, rest = path.partition("{")
        path = f"{before}999999{rest.partition('}')[2]}"
    return path


def test_every_route_is_in_the_table_with_its_right(
    table_of_routes: dict[tuple[str, str], Right | None],
) -> None:
    """A new route is entered in tests/web/rights.py by hand: nobody opens one by an oversight."""
    assert table_of_routes == {**RIGHTS, **dict.fromkeys((*OPEN, *NOTHING))}


@pytest.fixture
async def table_of_routes(service: Service) -> dict[tuple[str, str], Right | None]:
    """What the service says itself."""
    return {(method, path): right for method, path, right in routes(service.server.application)}


async def asked(caller: httpx.AsyncClient, method: str, path: str) -> tuple[int, str]:
    """The status and the media type of an answer, of which no more is read: a stream has no end."""
    async with caller.stream(method, filled(path)) as response:
        return response.status_code, response.headers.get("content-type", "")


async def test_every_role_is_let_in_where_it_has_the_right(serve: Serve, db: ThrowawayDatabase) -> None:
    """Every route × every role: 403 without the right, with it whatever the route itself answers."""
    service = await serve(rate=10_000)
    wrong = []
    for role in Role:
        caller = await _caller(service, db, role)
        for (method, path), right in RIGHTS.items():
            status, kind = await asked(caller, method, path)
            refused = status == 403
            if refused == allows(role, right) or status in (401, 429) or status >= 500:
                wrong.append(f"{role} {method} {path}: {status}")
            if refused and kind != "application/problem+json":
                wrong.append(f"{role} {method} {path}: {kind}")
    assert not wrong, "; ".join(wrong)


async def _caller(service: Service, db: ThrowawayDatabase, role: Role) -> httpx.AsyncClient:
    if role in GIVEN:
        return await service.caller(role)
    text = f"the {role.value}'s"
    assignment = {"job_id": 1, "attempt": 1} if role is Role.ASSIGNMENT else {}
    new = NewRunner(name="a", host="h", version="1", queues=(), kinds=(), slots=1, ttl=60.0)
    runner = await db.database.run(register_runner(new))
    grant = Grant(
        name=role.value,
        sha256=token_hash(text),
        role=role,
        created_by="test",
        worker_id=runner.id,
        **assignment,
    )
    made = await db.database.run(create_token(grant))
    assert made is not None
    # Somebody has to be able to speak for a runner, whoever it is, or nobody may for its assignments.
    await db.database.run(attach_token(runner.id, made.id))
    return await service.caller(text=text)


async def test_nobody_comes_in_without_a_token(service: Service) -> None:
    """Once a token was made, every route but the open ones answers 401 to who shows none, or a wrong one."""
    await service.token(Role.VIEWER)
    for caller in (await service.caller(), await service.caller(text="holdfast_wrong")):
        for method, path in list(RIGHTS)[:10]:
            response = await caller.request(method, filled(path))
            assert response.status_code == 401, (method, path)
            assert response.headers["www-authenticate"].startswith("Bearer")
    for method, path in OPEN:
        assert (await (await service.caller()).request(method, path)).status_code == 200


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
async def test_a_load_balancer_may_ask_without_wanting_a_body(service: Service, path: str) -> None:
    """HEAD is answered as GET is, but for the body."""
    caller = await service.caller()
    whole, head = await caller.get(path), await caller.head(path)
    assert (whole.status_code, whole.text) == (200, "ok\n")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"]


async def test_a_revoked_token_is_refused_at_once(
    service: Service, db: ThrowawayDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service remembers good tokens for a while, and hears of a revocation all the same."""
    monkeypatch.setattr("holdfast.web.gate.REMEMBERED", 3600.0)
    text, record = await service.token(Role.VIEWER)
    caller = await service.caller(text=text)
    assert (await caller.get("/api/v1/jobs")).status_code == 200
    await Operator(db.database, "test").tokens.revoke(record.id)
    # Well before the service would look again by itself.
    async with asyncio.timeout(20):
        while (await caller.get("/api/v1/jobs")).status_code != 401:  # noqa: ASYNC110 - an answer has no event
            await asyncio.sleep(0.01)


async def test_a_token_that_is_revoked_while_it_is_looked_up_is_not_remembered(
    service: Service, db: ThrowawayDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is older than the revocation, of which the gate hears before it has the answer."""
    text, record = await service.token(Role.VIEWER)
    caller, look = await service.caller(text=text), db.database.run

    async def slow(statement: Statement[Any], connection: Any = None) -> Any:
        answer = await look(statement, connection)
        if statement.name == "use_tokens":
            monkeypatch.undo()
            await Operator(db.database, "test").tokens.revoke(record.id)
            service.server.gate.notified("tokens", "")
        return answer

    monkeypatch.setattr(db.database, "run", slow)
    statuses = [(await caller.get("/api/v1/jobs")).status_code for _ in range(2)]
    assert statuses == [200, 401]


async def test_a_token_is_not_remembered_for_longer_than_it_is_good(
    service: Service, db: ThrowawayDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody notifies of its end: from the moment on at which it expires it is looked up each time."""
    monkeypatch.setattr("holdfast.web.gate.REMEMBERED", 3600.0)
    moment = datetime.now(UTC)
    # The clock of the database is an hour behind, so that it is good there once its time is over here.
    await Clock(db).set(moment - timedelta(hours=1))
    text, record = await service.token(Role.VIEWER)
    caller = await service.caller(text=text)
    expire = "update holdfast.tokens set expires_at = $2 where id = $1"
    await db.fetch(expire, record.id, moment)
    assert (await caller.get("/api/v1/jobs")).status_code == 200
    await db.fetch(expire, record.id, moment - timedelta(hours=1))
    assert (await caller.get("/api/v1/jobs")).status_code == 401


async def test_all_tokens_revoked_is_not_the_same_as_none(service: Service, db: ThrowawayDatabase) -> None:
    """The service does not fall open when the last token ends."""
    _, record = await service.token(Role.ADMIN)
    await Operator(db.database, "test").tokens.revoke(record.id)
    assert (await (await service.caller()).get("/api/v1/jobs")).status_code == 401


@pytest.mark.parametrize("since", ["nothing", "a while", "a revocation"])
async def test_guessing_is_stopped(serve: Serve, monkeypatch: pytest.MonkeyPatch, since: str) -> None:
    """After a burst of wrong tokens an address is told to wait; who was good before is not hurt."""
    if since == "a while":
        monkeypatch.setattr(gate, "REMEMBERED", 0.0)
    service = await serve(failures_burst=5.0, failures_rate=0.01)
    good = await service.caller(Role.VIEWER)
    assert (await good.get("/api/v1/jobs")).status_code == 200
    guesser = await service.caller()
    answers = []
    for guess in range(8):
        headers = {"Authorization": f"Bearer holdfast_{guess}"}
        answers.append(await guesser.get("/api/v1/jobs", headers=headers))
    assert [answer.status_code for answer in answers] == [401] * 5 + [429] * 3
    assert int(answers[-1].headers["retry-after"]) > 0
    if since == "a revocation":
        service.server.gate.notified("tokens", "")
    assert (await good.get("/api/v1/jobs")).status_code == 200


async def test_wrong_tokens_are_looked_up_so_often_and_no_more(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody keeps the database busy by showing what it has never seen."""
    looked = 0
    use_tokens = tokens.use_tokens

    def counted(hashes: Any) -> Any:
        nonlocal looked
        looked += len(hashes)
        return use_tokens(hashes)

    monkeypatch.setattr(tokens, "use_tokens", counted)
    service = await serve(rate=0.5, failures_burst=2.0, failures_rate=0.01)
    guesser = await service.caller()
    for guess in range(12):
        headers = {"Authorization": f"Bearer holdfast_{guess}"}
        assert (await guesser.get("/api/v1/jobs", headers=headers)).status_code in (401, 429)
    assert 1 <= looked < 12


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("/api/v1/jobs?stat=failed", "no query parameter 'stat': it takes before, concurrency_key"),
        ("/api/v1/jobs?state=failed&limit=1&x=", "no query parameter 'x': it takes before"),
        ("/api/v1/queues?a=1", "no query parameter 'a': it takes none"),
        ("/api/v1/jobs/1?a=1", "no query parameter 'a': it takes none"),
    ],
)
async def test_a_parameter_that_is_misspelt_is_named(service: Service, address: str, told: str) -> None:
    """A filter that nobody knows would find everything."""
    refused = await (await service.caller()).get(address)
    assert refused.status_code == 400
    assert told in refused.json()["detail"]


async def test_who_asks_too_often_is_told_to_wait(serve: Serve) -> None:
    """Each token has its own pace."""
    service = await serve(rate=1.0)
    one, other = await service.caller(Role.VIEWER), await service.caller(Role.PRODUCER)
    statuses: list[int] = []
    # Each second brings a further one, however few requests a full machine answers in it.
    while 429 not in statuses and len(statuses) < 50:
        statuses.append((await one.get("/api/v1/jobs")).status_code)
    assert statuses[:2] == [200, 200]
    assert statuses[-1] == 429
    assert (await other.get("/api/v1/jobs")).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ],
)
async def test_a_page_elsewhere_cannot_use_an_open_service(service: Service, headers: dict[str, str]) -> None:
    """Without tokens the service answers this machine alone, and not what a browser asks for others."""
    caller = await service.caller()
    assert (await caller.get("/api/v1/jobs")).status_code == 200
    refused = await caller.get("/api/v1/jobs", headers=headers)
    assert refused.status_code == 403
    assert refused.json()["type"] == "urn:holdfast:problem:origin-refused"


@pytest.mark.parametrize("header", ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP"])
@pytest.mark.parametrize("proxies", [(), ("127.0.0.1",)], ids=["unknown", "known"])
async def test_a_proxy_on_this_machine_lets_nobody_in_without_tokens(
    serve: Serve, header: str, proxies: tuple[str, ...]
) -> None:
    """It asks from here for somebody who is elsewhere, and who would else be an admin."""
    service = await serve(proxies=proxies)
    caller = await service.caller()
    refused = await caller.get("/api/v1/jobs", headers={header: "203.0.113.9"})
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:holdfast:problem:origin-refused")
    text, _ = await service.token(Role.VIEWER)
    headers = {header: "203.0.113.9", "Authorization": f"Bearer {text}"}
    assert (await caller.get("/api/v1/jobs", headers=headers)).status_code == 200


async def test_the_service_does_not_listen_to_others_without_tokens(serve: Serve) -> None:
    """Beyond loopback it starts only once there is a token."""
    with pytest.raises(SettingInvalid, match="there is no token yet"):
        await serve(host="0.0.0.0")  # noqa: S104 - this is what has to be refused


@pytest.mark.parametrize(
    ("proxies", "noted"), [((), "127.0.0.1"), (("127.0.0.1",), "203.0.113.9")], ids=["nobody", "the proxy"]
)
async def test_an_address_is_believed_of_known_proxies_alone(
    serve: Serve, proxies: tuple[str, ...], noted: str
) -> None:
    """Else anybody could say who they are, in the audit log and to who counts failures."""
    service = await serve(proxies=proxies)
    caller = await service.caller(Role.OPERATOR)
    forwarded = {"X-Forwarded-For": "203.0.113.9"}
    order = {"name": "mail", "create": True}
    assert (await caller.post("/api/v1/queues/pause", json=order, headers=forwarded)).status_code == 200
    acts = (await caller.get("/api/v1/audit", params={"subject": "queue mail"})).json()["acts"]
    assert [act["address"] for act in acts] == [noted]


@pytest.mark.parametrize(
    ("told", "noted"),
    [
        ("<script>", "unknown"),
        ("a" * 3000, "unknown"),
        ("fe80::1%<script>", "fe80::1"),
        ("2001:db8::7", None),
    ],
)
async def test_what_is_no_address_is_noted_as_none(serve: Serve, told: str, noted: str | None) -> None:
    """A proxy that is believed passes on what its callers say of themselves."""
    service = await serve(proxies=("127.0.0.1",))
    caller = await service.caller(Role.OPERATOR)
    order = {"name": "mail", "create": True}
    await caller.post("/api/v1/queues/pause", json=order, headers={"X-Forwarded-For": told})
    acts = (await caller.get("/api/v1/audit", params={"subject": "queue mail"})).json()["acts"]
    assert [act["address"] for act in acts] == [noted or told]
