"""`holdfast runs`: what operators see of runs, do to them and are told."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import holdfast
from holdfast.testing import ThrowawayDatabase

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def app() -> holdfast.App:
    """Orders with branches, an approval and children, one of which fails."""
    app = holdfast.App()

    async def charge(order_id: int) -> str:
        return f"charged {order_id}"

    async def pack(order_id: int) -> str:
        return f"packed {order_id}"

    async def label(order_id: int) -> str:
        msg = f"no printer for {order_id}"
        raise RuntimeError(msg)

    async def refund(order_id: int) -> str:
        return f"refunded {order_id}"

    @app.job
    async def weigh(order_id: int) -> int:
        return order_id

    @app.workflow
    async def ship(run: holdfast.Run, order_id: int) -> Any:
        return await run.wait_signal(f"courier {order_id}")

    @app.workflow(version="2")
    async def order(run: holdfast.Run, order_id: int) -> Any:
        run.on_failure(refund, order_id)
        await run.step(charge, order_id)
        async with run.branches() as branches:
            branches.start("pack", run.step(pack, order_id))
            branches.start("label", tolerant(run, order_id))
        approval = await run.wait_signal("approved", timeout=3600)
        await run.children([weigh.job(order_id), weigh.job(order_id)])
        await run.child(ship.job(order_id=order_id))
        return approval

    async def tolerant(run: holdfast.Run, order_id: int) -> None:
        try:
            await run.step(label, order_id)
        except RuntimeError:
            await run.sleep(0)

    @app.workflow
    async def plain(run: holdfast.Run, order_id: int) -> Any:
        if order_id < 0:
            msg = "less than nothing"
            await run.step(charge, order_id)
            raise ValueError(msg)
        return await run.step(charge, order_id)

    return app


@pytest.fixture
def rests(client: holdfast.Client, eventually: Any) -> Any:
    """Waits until a run waits for what is named: ``await rests(run_id, "signal 'approved'")``."""

    async def wait(run_id: int, reason: str) -> Any:
        async def awaited() -> bool:
            run = (await client.run(run_id)).run
            return run.state == "waiting" and run.suspension is not None and reason in run.suspension.reason

        return await eventually(awaited)

    return wait


async def begin(client: holdfast.Client, app: holdfast.App, kind: str = "order@2", order_id: int = 7) -> str:
    """Enqueue a run; answers its id as it is typed."""
    return str((await client.enqueue(app.request(kind, {"order_id": order_id}))).id)


async def test_a_run_is_shown_as_a_tree_with_what_each_node_waits_for(
    holdfast_command: Any, client: holdfast.Client, app: holdfast.App, work: Any, rests: Any
) -> None:
    """Steps in order, branches where they began, children below their step, times, errors, operators."""
    await work(app)
    run = await begin(client, app)
    await rests(int(run), "approved")
    waiting = await holdfast_command("runs", "show", run)
    assert (waiting.code, waiting.err) == (0, "")
    assert f"`holdfast runs signal {run} approved` sends the signal" in waiting.out
    sent = await holdfast_command("runs", "signal", run, "approved", '{"by": "ada"}', "--actor", "alice")
    assert (sent.code, sent.out) == (0, f"signal 1 approved is sent to run {run}\n")
    await rests(int(run), "child ")
    await rests(4, "courier")
    shown = (await holdfast_command("runs", "show", run)).out
    tree = [re.sub(r"  +(since |in )?\d.*", "", line.strip()) for line in shown.splitlines()[1:21]]
    assert tree[:3] == [
        f"{run} order@2 waiting",
        "├── it waits for child 4",
        "├── charge completed",
    ]
    # Two branches that go on at once stand in the order in which they began.
    pack = ["├── branch pack", "│   └── pack completed"]
    label = ["├── branch label", "│   ├── label failed", "│   └── sleep completed"]
    assert tree[3:8] in (pack + label, label + pack)
    assert tree[8:] == [
        "├── signal approved completed",
        "├── children 2 weigh completed",
        "│   ├── 2 completed",
        "│   ├── 2 weigh completed",
        "│   └── 3 weigh completed",
        "└── child ship running",
        "└── 4 ship waiting",
        "└── it waits for signal 'courier 7': `holdfast runs signal 4 'courier 7'` sends the signal",
        "",
        "operators",
        "at                       who    action      reason",
        tree[-1],
    ]
    assert "RuntimeError: no printer for 7" in shown
    assert "alice" in tree[-1]
    told = json.loads((await holdfast_command("runs", "show", run, "--json")).out)
    assert told["tree"]["families"][1]["members"][0]["run"]["kind"] == "ship"
    assert told["tree"]["why"] == "it waits for child 4"
    job = await holdfast_command("jobs", "show", run)
    assert job.out.endswith(f"`holdfast runs show {run}`\n")


async def test_runs_are_listed_with_what_they_wait_for(
    holdfast_command: Any, client: holdfast.Client, app: holdfast.App, work: Any, rests: Any
) -> None:
    """Filters choose, pages follow each other, and a paused run says who holds it back."""
    assert (await holdfast_command("runs", "list")).out == "no run fits\n"
    await work(app)
    first, second = [await begin(client, app) for _ in range(2)]
    for run in (first, second):
        await rests(int(run), "approved")
    done = await holdfast_command("runs", "pause", first, "--reason", "audit", "--actor", "ada")
    assert done.out == f"run {first} is paused\n"
    listed = (await holdfast_command("runs", "list", "--kind", "order", "--state", "waiting")).out
    _, second_line, first_line = listed.splitlines()
    assert re.match(rf"{second} +waiting .* signal 'approved' \(in 59m \d+s\)", second_line)
    assert re.match(rf"{first} +paused .* paused by ada: audit", first_line)
    page = await holdfast_command("runs", "list", "-n", "1", "--waits-for", "approved")
    assert page.out.endswith(f"more: --before {second}\n")
    (paused,) = json.loads((await holdfast_command("runs", "list", "--paused", "--json")).out)
    assert (str(paused["id"]), paused["state"], paused["run_at"]) == (first, "waiting", None)
    assert paused["suspension"]["signals"] == ["approved"]
    assert paused["suspension"]["pause_reason"] == "paused by ada: audit"


async def test_a_history_is_printed_page_by_page(
    holdfast_command: Any, client: holdfast.Client, app: holdfast.App, work: Any, rests: Any
) -> None:
    """The log of calls, and what the run remembers; each page says how to see the next one."""
    await work(app)
    run = await begin(client, app)
    await rests(int(run), "approved")
    page = await holdfast_command("runs", "history", run, "-n", "2")
    assert '"charged 7"' in page.out
    assert page.out.endswith("more: --after 2\n")
    (call,) = json.loads((await holdfast_command("runs", "history", run, "--after", "2", "--json")).out)
    # Which of the two branches was first is chance.
    assert (call["branch"], call["parameters"]) == (f"main/{call['step']}", {"args": [7]})
    assert (call["error"] or {}).get("type") == ("RuntimeError" if call["step"] == "label" else None)
    page = await holdfast_command("runs", "history", run, "--steps", "-n", "4")
    assert page.out.endswith("more: --after main/label:1\n")
    rest = await holdfast_command("runs", "history", run, "--steps", "--after", "main/label:1", "--json")
    (step,) = json.loads(rest.out)
    assert (step["branch"], step["place"], step["kind"], step["name"]) == ("main", 1, "signal", "approved")


async def test_a_run_is_paused_resumed_cancelled_and_forked(
    holdfast_command: Any,
    client: holdfast.Client,
    app: holdfast.App,
    work: Any,
    rests: Any,
    db: ThrowawayDatabase,
) -> None:
    """Each act says what became of it, and is in the audit log with who and why."""
    await work(app)
    run = await begin(client, app)
    await rests(int(run), "approved")
    await holdfast_command("runs", "signal", run, "approved", "--key", "mail 7", "--actor", "ada")
    await rests(int(run), "child ")
    await rests(4, "courier")
    done = await holdfast_command("runs", "pause", run, "--actor", "ada", "--reason", "audit")
    assert done.out == f"run {run} is paused, and 1 of its children\n"
    shown = (await holdfast_command("runs", "show", run)).out
    assert "it is held back (paused by ada: audit)" in shown
    assert "after that it waits for child 4" in shown
    done = await holdfast_command("runs", "resume", run, "--actor", "ada", "--json")
    assert json.loads(done.out) == {"id": int(run), "children": [4]}
    done = await holdfast_command("runs", "cancel", run, "--actor", "ada", "--reason", "wrong order")
    assert done.out == f"run {run} is being cancelled: it makes up for its steps first\n"
    with pytest.raises(holdfast.JobCancelled):
        await client.wait(int(run), timeout=20)
    shown = (await holdfast_command("runs", "show", run)).out
    assert "child ship unfinished" in shown
    assert "refund completed" in shown
    done = await holdfast_command("runs", "fork", run, "--at", "charge", "--actor", "ada")
    assert done.out == f"run 5 goes on behind step charge of run {run}\n"
    await rests(5, "approved")
    assert f"fork of   {run}" in (await holdfast_command("runs", "show", "5")).out
    acts = await db.fetch(
        "select actor, action, subject, reason, detail ->> 'name' from holdfast.audit_log order by id"
    )
    assert acts == [
        ("ada", "run.signal", f"job {run}", None, "approved"),
        ("ada", "run.pause", f"job {run}", "audit", None),
        ("ada", "run.pause", "job 4", "audit", None),
        ("ada", "run.resume", f"job {run}", None, None),
        ("ada", "run.resume", "job 4", None, None),
        ("ada", "job.cancel", f"job {run}", "wrong order", None),
        ("ada", "job.cancel", "job 4", "wrong order", None),
        ("ada", "run.fork", f"job {run}", None, None),
    ]


async def test_a_failed_run_is_taken_up_from_its_failed_step(
    holdfast_command: Any, client: holdfast.Client, app: holdfast.App, work: Any
) -> None:
    """What had succeeded is not done again; one that made up for its steps is not taken up."""
    await work(app)
    run = await begin(client, app, "plain", -1)
    with pytest.raises(holdfast.JobFailed):
        await client.wait(int(run), timeout=20)
    assert "ValueError: less than nothing" in (await holdfast_command("runs", "show", run)).out
    done = await holdfast_command("runs", "retry", run)
    assert (done.code, done.out) == (0, f"run {run} is taken up from its failed step\n")
    with pytest.raises(holdfast.JobFailed):
        await client.wait(int(run), timeout=20)
    assert [call.step for call in await client.activities(int(run))] == ["charge"]


async def test_a_signal_may_come_from_stdin(
    holdfast_command: Any, client: holdfast.Client, app: holdfast.App, db: ThrowawayDatabase
) -> None:
    """For payloads that are secret or large: nobody sees them in a list of processes."""
    run = await begin(client, app)
    done = await holdfast_command("runs", "signal", run, "approved", "-", "--json", stdin=b'{"by": "ada"}')
    assert json.loads(done.out) == {"id": 1}
    assert json.loads(await db.value("select payload::text from holdfast.signals")) == {"by": "ada"}


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["show", "4711"], 1, "job 4711 does not exist"),
        (["history", "4711"], 1, "job 4711 does not exist"),
        (["signal", "4711", "go"], 1, "job 4711 does not exist"),
        (["resume", "4711"], 1, "job 4711 does not exist"),
        (["cancel", "4711"], 1, "job 4711 does not exist"),
        (["show", "{job}"], 1, "job {job} is not a run: its kind 'weigh' is no workflow"),
        (["signal", "{job}", "go"], 1, "job {job} is not a run"),
        (["pause", "{job}"], 1, "job {job} is not a run"),
        (["cancel", "{job}"], 1, "job {job} is not a run"),
        (["fork", "{job}", "--at", "charge"], 1, "job {job} is not a run"),
        (["pause", "{ended}"], 1, "is completed: it cannot be paused; it has ended already"),
        (["signal", "{ended}", "go"], 1, "run {ended} has ended"),
        (["retry", "{ended}"], 1, "is completed: it cannot be retried; enqueue it anew"),
        (["resume", "{run}"], 1, "it cannot be resumed; it is not paused"),
        (
            ["fork", "{ended}", "--at", "refund"],
            1,
            "no finished step 'refund' in branch 'main': finished are charge",
        ),
        (["signal", "{run}", "go", "{{"], 2, "the payload is not JSON"),
        (["signal", "{run}", "go", "yes"], 2, "a text needs quotes of its own, such as '\"yes\"'"),
        (["signal", "{run}", ""], 2, "name is ''"),
        (["history", "{run}", "--after", "main:1"], 2, "--after is 'main:1': give the number of a line"),
        (["history", "{run}", "--steps", "--after", "7"], 2, "give a branch and a place such as main:7"),
        (["list", "--state", "paused"], 2, "'paused' is not one of"),
    ],
)
async def test_what_cannot_be_done_is_told_with_a_remedy(
    holdfast_command: Any,
    client: holdfast.Client,
    app: holdfast.App,
    work: Any,
    arguments: list[str],
    code: int,
    told: str,
) -> None:
    """No such run, a plain job, one that has ended, wrong use: one sentence each, and nothing is printed."""
    await work(app)
    job = await client.enqueue(app.request("weigh", {"order_id": 1}), delay=3600)
    run = await client.enqueue(app.request("plain", {"order_id": 1}), delay=3600)
    ended = await client.enqueue(app.request("plain", {"order_id": 1}))
    await client.wait(ended.id, timeout=20)
    ids = {"job": job.id, "run": run.id, "ended": ended.id}
    done = await holdfast_command("runs", *(argument.format(**ids) for argument in arguments))
    assert (done.code, done.out) == (code, "")
    assert told.format(**ids) in " ".join(done.err.split())
    assert "Traceback" not in done.err
