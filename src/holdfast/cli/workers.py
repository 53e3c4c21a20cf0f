"""`holdfast workers`: list, show, drain, resume."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from holdfast.cli.ids import id_argument
from holdfast.cli.moments import ago, clock, span
from holdfast.cli.operating import ActorOption, AnyOperator, ReasonOption, group, operate
from holdfast.cli.output import JsonOption, print_json, print_table, tell, tell_facts
from holdfast.cli.story import act_row
from holdfast.model.job import JobSummary
from holdfast.model.worker import Contact, WorkerRecord, WorkerState

app = group("See workers and drain them.")

COLUMNS = ("id", "name", "state", "running", "queues", "labels", "lease", "started", "host", "version")
HELD = ("job", "kind", "queue", "attempt", "state", "claimed", "started")
LIVE = (WorkerState.ONLINE, WorkerState.DRAINING)


@app.command("list")
def list_workers(
    context: typer.Context,
    *,
    ended: Annotated[bool, typer.Option("--all", help="Those too that are lost or offline.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List workers and runners: what they run, and when they were last heard."""

    async def work(operator: AnyOperator) -> None:
        found = await operator.workers.find(ended=ended)
        if as_json:
            print_json(found)
            return
        now = await operator.now()
        print_table(COLUMNS, [_row(worker, now) for worker in found], nothing="no worker is online")

    operate(context, work)


def _row(worker: WorkerRecord, now: datetime) -> tuple[object, ...]:
    return (
        worker.id,
        worker.name,
        stand(worker),
        _slots(worker),
        ",".join(worker.queues),
        ",".join(worker.labels) or None,
        _lease(worker, now),
        ago(worker.started_at, now),
        _host(worker),
        worker.version,
    )


def stand(worker: WorkerRecord) -> str:
    """Return the state of a worker; of a runner how well it is heard, and whether it is drained."""
    if worker.contact is None:
        return worker.state
    is_drained = worker.contact.drain_requested_at is not None or worker.state is WorkerState.DRAINING
    return f"{worker.contact.grade}, draining" if is_drained else worker.contact.grade


def _slots(worker: WorkerRecord) -> str:
    if worker.contact is not None:
        # What a runner was offered takes a slot as well.
        return f"{worker.running + worker.claimed} of {worker.slots}"
    buffered = f" +{worker.claimed}" if worker.claimed else ""
    return f"{worker.running} of {worker.slots}{buffered}"


def _host(worker: WorkerRecord) -> str:
    return worker.host if worker.contact is not None else f"{worker.host}:{worker.pid}"


def _lease(worker: WorkerRecord, now: datetime) -> str:
    if worker.state not in LIVE:
        return f"ended {ago(worker.ended_at or worker.expires_at, now)}"
    word = "renewed" if worker.contact is None else "heard"
    renewed = f"{word} {span(now - worker.renewed_at)} ago"
    return f"{renewed}, RAN OUT" if worker.expires_at <= now else renewed


@app.command()
def show(
    context: typer.Context,
    worker_id: Annotated[int, id_argument("The id of the worker.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Show a worker or a runner: how it is heard, what it takes, what it holds, what operators did."""

    async def work(operator: AnyOperator) -> None:
        story = await operator.workers.show(worker_id)
        if as_json:
            print_json(story)
            return
        now = await operator.now()
        tell_facts(_facts(story.worker, now))
        if story.holds:
            tell("\nholds")
            print_table(HELD, [_held(job, now) for job in story.holds])
        if story.audit:
            tell("\noperators")
            print_table(("at", "who", "action", "reason"), [act_row(act) for act in reversed(story.audit)])

    operate(context, work)


def _facts(worker: WorkerRecord, now: datetime) -> list[tuple[str, object]]:
    sort = "worker" if worker.contact is None else "runner"
    return [
        (sort, f"{worker.id} {worker.name}"),
        ("state", stand(worker)),
        ("slots", _slots(worker)),
        ("queues", ", ".join(worker.queues) or None),
        ("kinds", ", ".join(worker.kinds) or None),
        ("labels", ", ".join(worker.labels) or None),
        *([] if worker.contact is None else _contact_facts(worker.contact, now)),
        ("lease", _lease(worker, now)),
        ("started", ago(worker.started_at, now)),
        ("host", _host(worker)),
        ("version", worker.version),
    ]


def _contact_facts(contact: Contact, now: datetime) -> list[tuple[str, object]]:
    limits = ", ".join(f"{queue}={most}" for queue, most in sorted(contact.capacity.items()))
    return [
        ("capacity", limits or None),
        ("in contact", None if contact.since is None else f"since {clock(contact.since)}"),
        ("lost after", f"{contact.lost_after:g}s of silence"),
        ("term", contact.term),
        ("protocol", contact.protocol),
        ("drain asked", ago(contact.drain_requested_at, now)),
    ]


def _held(job: JobSummary, now: datetime) -> tuple[object, ...]:
    return (
        job.id,
        job.kind,
        job.queue,
        job.attempt,
        job.state,
        ago(job.claimed_at, now),
        ago(job.started_at, now),
    )


@app.command()
def resume(
    context: typer.Context,
    worker_ids: Annotated[list[int], id_argument("The ids of runners.", "ID...")],
    *,
    reason: ReasonOption = None,
    actor: ActorOption = None,
) -> None:
    """Let drained runners take jobs again."""

    async def work(operator: AnyOperator) -> None:
        for worker_id in worker_ids:
            await operator.workers.resume(worker_id, reason)
            tell(f"worker {worker_id} takes jobs again")

    operate(context, work, actor=actor)


@app.command()
def drain(
    context: typer.Context,
    worker_ids: Annotated[list[int], id_argument("The ids of workers.", "ID...")],
    *,
    reason: ReasonOption = None,
    actor: ActorOption = None,
) -> None:
    """Ask workers to take nothing more and finish what they run.

    A process leaves then. A runner stays, drained also after a restart, until `holdfast workers resume ID`.
    """

    async def work(operator: AnyOperator) -> None:
        for worker_id in worker_ids:
            await operator.workers.drain(worker_id, reason)
            tell(f"worker {worker_id} is draining")

    operate(context, work, actor=actor)
