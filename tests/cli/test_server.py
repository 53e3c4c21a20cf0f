"""`holdfast --server`: the commands without a database, by way of the service."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

import holdfast
from holdfast.cli import main
from holdfast.cli.pouring import Numbered, Pouring
from holdfast.client.intake import Intake
from holdfast.client.operator import Operator
from holdfast.errors import DatabaseUnavailable, HoldfastError, ServerUnavailable, TokenInvalid
from holdfast.model.job import JobHandle, NewJob
from holdfast.model.token import Role
from holdfast.testing import ThrowawayDatabase
from tests.web.conftest import Serve, Service, serve  # noqa: F401 - the last one is a fixture

READING = (
    ("jobs", "list", "--json"),
    ("jobs", "list", "--state", "failed", "--state", "cancelled", "--tag", "red", "--json"),
    ("jobs", "list", "--since", "1h", "--limit", "1", "--json"),
    ("jobs", "show", "1", "--json"),
    ("jobs", "show", "3", "--json"),
    ("jobs", "logs", "1", "--json"),
    ("jobs", "logs", "1", "--tail", "1", "--json"),
    ("jobs", "logs", "1", "--tail", "0", "--follow", "--json"),
    ("jobs", "wait", "1"),
    ("jobs", "wait", "2"),
    ("jobs", "cancel", "--queue", "mail", "--dry-run", "--json"),
    ("queues", "list", "--json"),
    ("workers", "list", "--all", "--json"),
    ("schedules", "list", "--json"),
    ("runs", "list", "--json"),
    ("runs", "show", "1", "--json"),
    ("jobs", "show", "999"),
    ("tokens", "list", "--json"),
    ("audit", "--json"),
)


@pytest.fixture
async def service(serve: Serve) -> Service:  # noqa: F811
    """A service with the usual settings."""
    return await serve()


async def _variables(service: Service, role: Role = Role.ADMIN) -> dict[str, str]:
    text, _ = await service.token(role)
    return {"HOLDFAST_SERVER": service.url, "HOLDFAST_TOKEN": text}


async def _history(client: holdfast.Client, db: ThrowawayDatabase, work: Any) -> None:
    """A completed, a failed and a waiting job, a paused queue, a schedule, a worker that has left."""
    app = holdfast.App()

    @app.job
    async def greet(job: holdfast.Job, name: str) -> str:
        job.log.info("greeting %s", name)
        job.log.info("done")
        return f"hello {name}"

    @app.job(max_attempts=1)
    async def fail() -> None:
        msg = "no such luck"
        raise RuntimeError(msg)

    app.schedule("nightly", greet.job(name="secret"), cron="@daily")
    process = await work(app)
    first = await client.enqueue(greet.job(name="ada"), tags=["red"])
    second = await client.enqueue(fail.job(), tags=["red"])
    await client.wait(first.id, timeout=20)
    with pytest.raises(holdfast.JobFailed):
        await client.wait(second.id, timeout=20)
    await client.enqueue(greet.job(name="bob"), queue="mail", delay=3600)
    await Operator(db.database, "alice").queues.pause("mail", "for a test", create=True)
    # A leader would count the jobs of the queues between two calls.
    await process.stop(5.0)


async def test_reading_is_the_same_over_the_service(
    service: Service,
    db: ThrowawayDatabase,
    client: holdfast.Client,
    work: Any,
) -> None:
    """What a command prints, and how it exits, does not depend on the way to the database."""
    await _history(client, db, work)
    remotely = await _variables(service)
    locally = {"HOLDFAST_DATABASE_URL": db.dsn, "HOLDFAST_SCHEMA": db.schema}
    for command in READING:
        over_service, on_database = await _called(command, remotely), await _called(command, locally)
        assert over_service.exit_code == on_database.exit_code, (command, over_service.stderr)
        assert _timeless(over_service.stdout) == _timeless(on_database.stdout), command
        assert over_service.stderr == on_database.stderr, command


async def _called(command: Sequence[str], variables: dict[str, str]) -> Any:
    """Call a command in a thread of this process: there are many, and each process takes its time."""
    return await asyncio.to_thread(CliRunner().invoke, main.app, command, env=variables)


def _timeless(text: str) -> str:
    """What a command prints, without what moves between two calls."""
    moving = ('"renewed_at"', '"expires_at"', '"last_used_at"', '"counted_at"')
    return "\n".join(line for line in text.splitlines() if not line.strip().startswith(moving))


async def test_acting_over_the_service_is_audited_with_the_token_and_address(
    holdfast_command: Any,
    service: Service,
    db: ThrowawayDatabase,
) -> None:
    """Enqueue one job and many, pause a queue, cancel all: each act is in the name of the token's owner."""
    remotely = await _variables(service, Role.OPERATOR)

    async def done(*command: str, stdin: bytes = b"") -> str:
        ended = await holdfast_command(*command, stdin=stdin, **remotely)
        assert ended.code == 0, ended.err
        return str(ended.out)

    made = json.loads(await done("enqueue", "greet", '{"name": "Ada"}', "--priority", "1", "--json"))
    await done("enqueue", "greet", '{"name": "Bob"}', "--delay", "1h")
    lines = b"".join(b'{"kind": "greet", "args": {"name": "%d"}}\n' % n for n in range(700))
    assert "700 jobs enqueued" in await done("enqueue", "-", "--queue", "mail", stdin=lines)
    assert await db.value("select priority from holdfast.jobs where id = $1", made["id"]) == 1
    assert "is paused" in await done("queues", "pause", "mail", "--reason", "too much")
    assert "700 jobs cancelled" in await done("jobs", "cancel", "--queue", "mail", "--yes")
    assert await db.value("select count(*) from holdfast.live_jobs") == 2
    acts = await db.fetch("select distinct action, actor, address from holdfast.audit_log order by action")
    assert ("queue.pause", "a operator", "127.0.0.1") in acts
    assert ("job.cancel", "a operator", "127.0.0.1") in acts


# With so much padding a batch is more than one request.
@pytest.mark.parametrize("pad", [0, 6000])
@pytest.mark.parametrize("skips", [True, False])
async def test_lines_over_a_service_go_in_once_whichever_of_them_is_refused(
    holdfast_command: Any, service: Service, db: ThrowawayDatabase, skips: bool, pad: int
) -> None:
    """What one request has brought in is not sent again because a later one is refused."""
    remotely = await _variables(service, Role.OPERATOR)
    await db.fetch("select holdfast.enqueue('holder', unique_key => 'taken')")
    made = [{"kind": "greet", "args": {"number": number, "pad": "x" * pad}} for number in range(2500)]
    made[2400] |= {"unique_key": "taken", "unique_policy": "reject"}
    stdin = b"".join(json.dumps(line).encode() + b"\n" for line in made)
    done = await holdfast_command("enqueue", "-", *["--skip-bad"] * skips, "--json", stdin=stdin, **remotely)
    assert done.code == 1
    assert "line 2401 is no job: job 1 already holds unique key 'taken'" in done.err
    assert json.loads(done.out)["new"] == (2499 if skips else 2400)
    numbers = await db.fetch(
        "select (args ->> 'number')::integer from holdfast.jobs where kind = 'greet' order by 1"
    )
    wanted = [number for number in range(2500) if number < 2400 or (skips and number > 2400)]
    assert [number for (number,) in numbers] == wanted


async def test_lines_over_a_service_keep_to_its_pace(
    holdfast_command: Any,
    serve: Serve,  # noqa: F811 - the fixture
    db: ThrowawayDatabase,
) -> None:
    """A request that comes too early is sent again: a stream must not end because it is quick."""
    remotely = await _variables(await serve(rate=1.0), Role.OPERATOR)
    # Five requests, of which the first two may come at once.
    line = json.dumps({"kind": "greet", "args": {"pad": "x" * 30_000}}).encode() + b"\n"
    done = await holdfast_command("enqueue", "-", stdin=line * 1200, **remotely)
    assert (done.code, done.err) == (0, "")
    assert await db.value("select count(*) from holdfast.jobs") == 1200


@dataclass
class Shut:
    """A way in that takes so many batches of one or two lines, and then comes to an error."""

    error: HoldfastError
    takes: int = 1

    def parts(self, numbered: Numbered) -> Iterator[Numbered]:
        """The first line on its own, then the others."""
        return iter([numbered[:1], numbered[1:]])

    async def put(self, rows: list[NewJob]) -> list[JobHandle]:
        """Take them, or none any more."""
        if not self.takes:
            raise self.error
        self.takes -= 1
        return [JobHandle(id) for id, _ in enumerate(rows, 1)]


KNOWN = "what stands before line 7 is enqueued"
LOOK = "may be enqueued too: look with `holdfast jobs list` before you send them again"
KEYS = "a line with a unique_key makes no second job while its first one lives"
CLOSED, AWAY = ServerUnavailable("http://x", "it is closed"), DatabaseUnavailable("it is away")


@pytest.mark.parametrize(
    ("error", "takes", "atomic", "told"),
    [
        (TokenInvalid("a token is missing"), 1, False, f"{KNOWN}\n"),
        (TokenInvalid("a token is missing"), 0, False, ""),
        (CLOSED, 1, False, f"{KNOWN}; lines 7 to 9 {LOOK}; {KEYS}\n"),
        (AWAY, 1, False, f"{KNOWN}; lines 7 to 9 {LOOK}; {KEYS}\n"),
        (CLOSED, 0, False, f"line 4 {LOOK}; {KEYS}\n"),
        (AWAY, 1, True, ""),
    ],
)
async def test_a_stream_that_ends_early_says_how_far_it_came(
    capsys: pytest.CaptureFixture[str], error: HoldfastError, takes: int, atomic: bool, told: str
) -> None:
    """Whoever goes on from there loses no line, and knows of which it could enqueue one twice."""
    job = NewJob(kind="greet", args="{}")
    pouring = Pouring(Intake(None, {}), skip_bad=False, atomic=atomic)
    with pytest.raises(type(error)):
        await pouring._put(Shut(error, takes), [(4, job), (7, job), (9, job)])
    assert capsys.readouterr().err.removeprefix("holdfast: ") == told


async def test_a_refusal_over_the_service_reads_as_on_the_database(
    holdfast_command: Any,
    service: Service,
) -> None:
    """One sentence on stderr: too little right, no token, nobody there, a wrong option."""
    viewer = await _variables(service, Role.VIEWER)
    denied = await holdfast_command("queues", "pause", "mail", **viewer)
    assert (denied.code, denied.err.count("\n")) == (1, 1)
    assert "may not do this" in denied.err
    without = await holdfast_command("jobs", "list", HOLDFAST_SERVER=service.url)
    assert (without.code, without.err.count("\n")) == (1, 1)
    assert "a token is missing: set HOLDFAST_TOKEN to one of `holdfast tokens create" in without.err
    runner = await holdfast_command("runner", **viewer | {"HOLDFAST_TOKEN": "hfg_wrong"})
    assert runner.code == 1
    assert "set HOLDFAST_TOKEN to one of `holdfast tokens create NAME --role registrar`" in runner.err
    away = await holdfast_command("queues", "pause", "mail", HOLDFAST_SERVER="http://127.0.0.1:9")
    assert (away.code, away.err.count("\n")) == (1, 1)
    assert "does not answer" in away.err
    named = await holdfast_command("queues", "pause", "mail", "--actor", "eve", **viewer)
    assert (named.code, named.err.count("\n")) == (2, 1)
    assert "the token tells who acts" in named.err


async def test_deliveries_are_managed_over_the_service_by_admins_alone(service: Service) -> None:
    """Add, list, remove as on the database; an operator may not see the addresses."""
    admin, operator = await _variables(service), await _variables(service, Role.OPERATOR)
    added = await _called(("deliveries", "add", "hub", "https://example.com", "--queue", "builds"), admin)
    assert (added.exit_code, added.stdout[:4]) == (0, "hfs_"), added.stderr
    assert "https://example.com" in (await _called(("deliveries", "endpoints"), admin)).stdout
    denied = await _called(("deliveries", "endpoints"), operator)
    assert (denied.exit_code, "may not do this" in denied.stderr) == (1, True)
    assert (await _called(("deliveries", "list"), operator)).stdout == "no delivery fits\n"
    assert (await _called(("deliveries", "remove", "hub"), admin)).exit_code == 0
    assert (await _called(("deliveries", "endpoints"), admin)).stdout == "there is no endpoint\n"
