"""What the command line shows of jobs for runners, on the database and over the service."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

import holdfast
from holdfast.cli import main
from holdfast.client.operator import Operator
from holdfast.model.token import Role
from holdfast.testing import ThrowawayDatabase
from tests.web.conftest import Serve, Service, serve  # noqa: F401 - the last one is a fixture
from tests.web.test_runners import enqueue, register

CONTENT = b"\x00built\xff"


@pytest.fixture
async def service(serve: Serve) -> Service:  # noqa: F811
    """A service with the usual settings."""
    return await serve()


async def ways(service: Service, db: ThrowawayDatabase) -> list[dict[str, str]]:
    """The variables of both ways: on the database, and over the service as somebody who may only look."""
    text, _ = await service.token(Role.VIEWER)
    locally = {"HOLDFAST_DATABASE_URL": db.dsn, "HOLDFAST_SCHEMA": db.schema}
    return [locally, {"HOLDFAST_SERVER": service.url, "HOLDFAST_TOKEN": text}]


async def shown(way: dict[str, str], *command: str) -> str:
    """What a command prints; called in a thread of this process, for each process takes its time."""
    done = await asyncio.to_thread(CliRunner().invoke, main.app, command, env=way)
    assert done.exit_code == 0, done.stderr
    return str(done.stdout)


async def refused(way: dict[str, str], *command: str) -> tuple[int, str]:
    """How a command ends that cannot do what it should, and what it says."""
    done = await asyncio.to_thread(CliRunner().invoke, main.app, command, env=way)
    return done.exit_code, done.stderr


async def begun(runner: httpx.AsyncClient) -> str:
    """Take a job and begin it; answers the place of its assignment."""
    [offer] = (await runner.post("/runner/v1/claim", json={})).json()["offers"]
    place = f"/runner/v1/assignments/{offer['job']}/{offer['attempt']}"
    for step in ("accept", "start"):
        assert (await runner.post(f"{place}/{step}", json={})).is_success
    return place


async def cancelled(service: Service, client: holdfast.Client, db: ThrowawayDatabase) -> int:
    """A command that left a file, climbed down the whole ladder, and whose runner then changed its mind."""
    runner = await register(service, labels=["gpu", "linux"])
    job_id = await enqueue(
        client, labels=["gpu"], runner="build-1", pin_for=3600, on_loss="hold", stall_limit=90
    )
    place = await begun(runner)
    assert (await runner.put(f"{place}/artifacts/dist/app.bin", content=CONTENT)).status_code == 201
    await Operator(db.database, "ada").jobs.cancel(job_id, "the wrong branch")
    for rung in ("acknowledged", "interrupted", "killed"):
        assert (await runner.post(f"{place}/progress", json={"rung": rung})).is_success
    assert (await runner.post(f"{place}/finish", json={"outcome": "cancelled"})).is_success
    late = {"outcome": "completed", "reason": "it was done after all"}
    assert (await runner.post(f"{place}/finish", json=late)).status_code == 409
    return job_id


async def test_show_tells_everything_that_runners_had_to_do_with_a_job(
    service: Service, db: ThrowawayDatabase, client: holdfast.Client
) -> None:
    """Placement, the life of the assignment, each rung of the cancel, the refused report, what was left."""
    job_id = await cancelled(service, client, db)
    for way in await ways(service, db):
        text = await shown(way, "jobs", "show", str(job_id))
        for part in ("labels       gpu", "pinned to    build-1, others from", "on loss      hold", "1m 30s"):
            assert part in text
        assert "cancel of #1: the wrong branch" in text
        rungs = text.partition("cancel of #1")[2].partition("refused reports")[0]
        order = ["requested", "delivered", "acknowledged", "interrupted", "killed", "ended"]
        assert sorted(order, key=rungs.index) == order
        assert "it was done after all" in text.partition("refused reports of #1")[2]
        assert sha256(CONTENT).hexdigest() in text
        told = json.loads(await shown(way, "jobs", "show", str(job_id), "--json"))["runners"]
        [one] = told["assignments"]
        assert (one["runner"], one["outcome"]) == ("build-1", "cancelled")
        assert one["offered_at"] <= one["accepted_at"] <= one["started_at"] <= one["ended_at"]


async def test_a_job_that_is_not_for_runners_says_nothing_of_them(
    service: Service, db: ThrowawayDatabase, client: holdfast.Client
) -> None:
    """Nothing is printed, and JSON has null."""
    job_id = (await client.enqueue(holdfast.App().job(kind="greet")(lambda: None).job())).id
    for way in await ways(service, db):
        assert "runners" not in await shown(way, "jobs", "show", str(job_id))
        assert json.loads(await shown(way, "jobs", "show", str(job_id), "--json"))["runners"] is None


async def test_artifacts_are_listed_and_fetched(
    service: Service, db: ThrowawayDatabase, client: holdfast.Client, tmp_path: Path
) -> None:
    """They arrive byte for byte under their names; a name that is not there is an error."""
    job_id = str(await cancelled(service, client, db))
    for nth, way in enumerate(await ways(service, db)):
        [told] = json.loads(await shown(way, "jobs", "artifacts", job_id, "--json"))
        assert (told["name"], told["size"]) == ("dist/app.bin", len(CONTENT))
        out = tmp_path / str(nth)
        await shown(way, "jobs", "artifacts", job_id, "--out", str(out))
        assert (out / "dist" / "app.bin").read_bytes() == CONTENT
        code, said = await refused(way, "jobs", "artifacts", job_id, "--name", "nope")
        assert (code, "nope" in said) == (2, True)


@pytest.mark.parametrize("name", ["../out.txt", "/out.txt", "a/../../out.txt"])
async def test_an_artifact_is_never_saved_outside_its_folder(
    service: Service, db: ThrowawayDatabase, client: holdfast.Client, tmp_path: Path, name: str
) -> None:
    """A runner may call a file what it likes: whoever fetches it decides where it goes."""
    job_id = await cancelled(service, client, db)
    await db.fetch("update holdfast.artifacts set name = $1", name)
    for letter in ("+", "z"):
        await db.fetch(
            "insert into holdfast.artifacts "
            "select (jsonb_populate_record(a, jsonb_build_object('name', $1::text))).* "
            "from holdfast.artifacts a where a.name = $2",
            letter,
            name,
        )
    for nth, way in enumerate(await ways(service, db)):
        out = tmp_path / str(nth)
        code, said = await refused(way, "jobs", "artifacts", str(job_id), "--out", str(out))
        assert (code, "leads out of the folder; all others are saved" in said) == (2, True)
        assert {path.name: path.read_bytes() for path in out.iterdir()} == {"+": CONTENT, "z": CONTENT}
    assert not (tmp_path / "out.txt").exists()


async def test_a_backslash_in_the_name_of_an_artifact_is_a_letter_like_any_other(
    service: Service, db: ThrowawayDatabase, client: holdfast.Client, tmp_path: Path
) -> None:
    """Where it parts no folders it leads nowhere, so the file is saved under its name."""
    job_id = str(await cancelled(service, client, db))
    await db.fetch("update holdfast.artifacts set name = $1", r"dist/app\x86.bin")
    for nth, way in enumerate(await ways(service, db)):
        out = tmp_path / str(nth)
        await shown(way, "jobs", "artifacts", job_id, "--out", str(out))
        assert (out / "dist" / r"app\x86.bin").read_bytes() == CONTENT


async def test_an_artifact_that_was_damaged_is_not_saved(
    service: Service, db: ThrowawayDatabase, client: holdfast.Client, tmp_path: Path
) -> None:
    """What arrives is held against the hash that was told."""
    job_id = await cancelled(service, client, db)
    await db.fetch("update holdfast.artifacts set data = 'other'")
    for way in await ways(service, db):
        code, said = await refused(way, "jobs", "artifacts", str(job_id), "--out", str(tmp_path))
        assert (code, "SHA-256" in said) == (1, True)
    assert not (tmp_path / "dist").exists()


@pytest.mark.parametrize(
    ("silence", "grade"), [(0, "online"), (46, "late"), (70, "offline")], ids=lambda value: str(value)
)
async def test_runners_are_listed_and_shown_with_how_well_they_are_heard(
    service: Service, db: ThrowawayDatabase, client: holdfast.Client, silence: int, grade: str
) -> None:
    """Grade, labels, slots in use, version, protocol, drain and last contact, and what it holds."""
    runner = await register(service, labels=["gpu"], slots=3, version="7.1", capacity={"default": 2})
    job_id = await enqueue(client)
    await begun(runner)
    [worker_id] = await db.fetch("select id from holdfast.workers")
    await Operator(db.database, "ada").workers.drain(worker_id[0], "new disks")
    await db.fetch(
        "update holdfast.workers set renewed_at = renewed_at - make_interval(secs => $1)", float(silence)
    )
    for way in await ways(service, db):
        row = await shown(way, "workers", "list")
        for part in (f"{grade}, draining", "1 of 3", "gpu", "heard", "7.1"):
            assert part in row
        text = await shown(way, "workers", "show", str(worker_id[0]))
        for part in (
            "capacity     default=2",
            "term         1",
            "protocol     1",
            "new disks",
            f"\n{job_id} ",
        ):
            assert part in text
        told = json.loads(await shown(way, "workers", "show", str(worker_id[0]), "--json"))
        assert told["worker"]["contact"]["grade"] == grade
        assert told["worker"]["contact"]["silence"] >= silence


async def test_a_worker_that_never_was_cannot_be_shown(service: Service, db: ThrowawayDatabase) -> None:
    """The error names the id."""
    for way in await ways(service, db):
        code, said = await refused(way, "workers", "show", "77")
        assert (code, "77" in said) == (1, True)


async def said(runner: httpx.AsyncClient, place: str, outcome: dict[str, object]) -> None:
    """Write a line to both streams, and end."""
    for stream in ("stdout", "stderr"):
        content = f"to {stream}\n".encode()
        sent = await runner.patch(f"{place}/logs/{stream}", content=content, headers={"Holdfast-Offset": "0"})
        assert sent.status_code == 202
    assert (await runner.post(f"{place}/finish", json=outcome)).is_success


ENDS: list[tuple[dict[str, object], int]] = [
    ({"outcome": "completed", "result": {"exit_code": 0}}, 0),
    ({"outcome": "failed", "reason": "exit code 3", "result": {"exit_code": 3}}, 3),
    ({"outcome": "failed", "reason": "killed by SIGKILL", "result": {"exit_code": None}}, 1),
]


@pytest.mark.parametrize(("outcome", "code"), ENDS)
@pytest.mark.parametrize("nth", [0, 1], ids=["database", "service"])
async def test_a_command_is_followed_as_if_it_ran_here(
    service: Service, db: ThrowawayDatabase, outcome: dict[str, object], code: int, nth: int
) -> None:
    """Each stream goes where it went there, and the exit code is the program's."""
    runner = await register(service, labels=["gpu"])
    [locally, _] = await ways(service, db)
    text, _ = await service.token(Role.ADMIN)
    remotely = {"HOLDFAST_SERVER": service.url, "HOLDFAST_TOKEN": text}
    way = (locally, remotely)[nth] | {"KEY": "k"}
    words = (
        "command",
        "--label",
        "gpu",
        "--env",
        "A=b=c",
        "--secret",
        "KEY",
        "-f",
        "--",
        "make",
        "-j2",
        "all",
    )
    following = asyncio.create_task(asyncio.to_thread(CliRunner().invoke, main.app, words, env=way))
    [offer] = (await runner.post("/runner/v1/claim", json={"wait": 20})).json()["offers"]
    assert json.loads(offer["spec"])["args"] == {
        "argv": ["make", "-j2", "all"],
        "env": {"A": "b=c", "KEY": "k"},
        "secrets": ["KEY"],
    }
    place = f"/runner/v1/assignments/{offer['job']}/{offer['attempt']}"
    await runner.post(f"{place}/start", json={})
    await said(runner, place, outcome)
    async with asyncio.timeout(20):
        done = await following
    assert (done.exit_code, done.stdout) == (code, "to stdout\n")
    assert "to stderr\n" in done.stderr
    assert done.stderr.startswith(f"job {offer['job']}\n")


async def test_the_secrets_of_a_command_are_shown_to_nobody(
    service: Service, db: ThrowawayDatabase, client: holdfast.Client
) -> None:
    """Whoever may look at jobs sees that there is one, and cannot find it out by searching."""
    env, secrets = {"KEY": "hunter2-hunter2", "OPEN": "sesame"}, ["KEY"]
    job = await client.enqueue(holdfast.command("make", env=env, secrets=secrets), labels=["gpu"])
    both = await ways(service, db)
    args = {"argv": ["make"], "env": {"KEY": "***", "OPEN": "sesame"}, "secrets": ["KEY"]}
    assert (await client.job(job.id)).args == args
    for way in both:
        assert json.loads(await shown(way, "jobs", "show", str(job.id), "--json"))["job"]["args"] == args
        assert "hunter2" not in await shown(way, "jobs", "show", str(job.id))
        assert json.loads(await shown(way, "jobs", "list", "--text", "HUNTER2", "--json")) == []
        assert len(json.loads(await shown(way, "jobs", "list", "--text", "Sesame", "--json"))) == 1
    await client.cancel(job.id)
    for way in both:
        assert json.loads(await shown(way, "jobs", "list", "--text", "hunter2", "--json")) == []
        assert len(json.loads(await shown(way, "jobs", "list", "--text", "sesame", "--json"))) == 1


@pytest.mark.parametrize(
    ("args", "seen"),
    [
        ('{"env": 5, "secrets": ["A"]}', {"env": 5, "secrets": ["A"]}),
        ('{"env": {"A": 1}, "secrets": "A"}', {"env": {"A": 1}, "secrets": "A"}),
        ('{"env": {}, "secrets": ["A"]}', {"env": {}, "secrets": ["A"]}),
        (
            '{"env": {"A": {"b": 1}, "B": 2}, "secrets": ["A", 5]}',
            {"env": {"A": "***", "B": 2}, "secrets": ["A", 5]},
        ),
    ],
)
async def test_what_plain_sql_made_of_a_command_can_be_looked_at(
    db: ThrowawayDatabase, client: holdfast.Client, args: str, seen: dict[str, Any]
) -> None:
    """Whatever stands where variables and secrets are expected."""
    job_id = await db.value("select holdfast.enqueue('command', $1::jsonb)", args)
    assert (await client.job(job_id)).args == seen


async def test_a_command_is_put_in_and_tried_once_where_nobody_follows(
    service: Service, db: ThrowawayDatabase, tmp_path: Path
) -> None:
    """The id is printed; a script comes from a file; more attempts have to be asked for."""
    script = tmp_path / "job.sh"
    script.write_text("echo hi")
    [locally, _] = await ways(service, db)
    assert await shown(locally, "command", "--script", str(script), "--max-attempts", "3") == "job 1\n"
    assert await shown(locally, "command", "true", "--artifact", "*.log") == "job 2\n"
    found = await db.fetch("select args::text, max_attempts from holdfast.jobs order by id")
    assert [(json.loads(args), most) for args, most in found] == [
        ({"script": "echo hi"}, 3),
        ({"argv": ["true"], "artifacts": ["*.log"]}, 1),
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "give either argv or script"),
        (("--env", "PATH", "true"), "NAME=VALUE"),
        (("--secret", "NOBODY_SET_IT", "true"), "set the variable"),
        (("--script", "nowhere.sh"), "cannot be read"),
    ],
)
async def test_a_command_that_makes_no_sense_is_wrong_use(
    service: Service, db: ThrowawayDatabase, words: tuple[str, ...], told: str
) -> None:
    """Exit code 2, and a sentence that says what to do."""
    [locally, _] = await ways(service, db)
    code, sentence = await refused(locally, "command", *words)
    assert (code, told in sentence) == (2, True), sentence
