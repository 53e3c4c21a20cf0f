"""`holdfast workers`: list, drain, resume."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from holdfast.cli.moments import ago, span
from holdfast.cli.operating import ActorOption, AnyOperator, ReasonOption, group, operate
from holdfast.cli.output import JsonOption, print_json, print_table
from holdfast.model.worker import WorkerRecord, WorkerState

app = group("See workers and drain them.")

COLUMNS = ("id", "name", "state", "running", "queues", "lease", "started", "host", "version")
LIVE = (WorkerState.ONLINE, WorkerState.DRAINING)


@app.command("list")
def list_workers(
    context: typer.Context,
    *,
    ended: Annotated[bool, typer.Option("--all", help="Those too that are lost or offline.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List workers: what they run and when their lease was renewed."""

    async def work(operator: AnyOperator) -> None:
        found = await operator.workers.find(ended=ended)
        if as_json:
            print_json(found)
            return
        now = await operator.now()
        print_table(COLUMNS, [_row(worker, now) for worker in found], nothing="no worker is online")

    operate(context, work)


def _row(worker: WorkerRecord, now: datetime) -> tuple[object, ...]:
    buffered = f" +{worker.claimed}" if worker.claimed else ""
    return (
        worker.id,
        worker.name,
        worker.state,
        f"{worker.running} of {worker.slots}{buffered}",
        ",".join(worker.queues),
        _lease(worker, now),
        ago(worker.started_at, now),
        f"{worker.host}:{worker.pid}",
        worker.version,
    )


def _lease(worker: WorkerRecord, now: datetime) -> str:
    if worker.state not in LIVE:
        return f"ended {ago(worker.ended_at or worker.expires_at, now)}"
    renewed = f"renewed {span(now - worker.renewed_at)} ago"
    return f"{renewed}, RAN OUT" if worker.expires_at <= now else renewed


@app.command()
def resume(
    context: typer.Context,
    worker_ids: Annotated[list[int], typer.Argument(help="The ids of runners.", metavar="ID...")],
    *,
    reason: ReasonOption = None,
    actor: ActorOption = None,
) -> None:
    """Let drained runners take jobs again."""

    async def work(operator: AnyOperator) -> None:
        for worker_id in worker_ids:
            await operator.workers.resume(worker_id, reason)
            typer.echo(f"worker {worker_id} takes jobs again")

    operate(context, work, actor=actor)


@app.command()
def drain(
    context: typer.Context,
    worker_ids: Annotated[list[int], typer.Argument(help="The ids of workers.", metavar="ID...")],
    *,
    reason: ReasonOption = None,
    actor: ActorOption = None,
) -> None:
    """Ask workers to take nothing more, finish what they run and leave."""

    async def work(operator: AnyOperator) -> None:
        for worker_id in worker_ids:
            await operator.workers.drain(worker_id, reason)
            typer.echo(f"worker {worker_id} is draining")

    operate(context, work, actor=actor)
