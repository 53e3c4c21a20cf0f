"""`holdfast deliveries`: list, redeliver, and the endpoints that are told of what ends."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from holdfast.cli.context import invocation
from holdfast.cli.ids import id_argument
from holdfast.cli.listing import BeforeOption, LimitOption, Listing, show_page
from holdfast.cli.moments import ago
from holdfast.cli.operating import ActorOption, AnyOperator, ReasonOption, group, operate
from holdfast.cli.output import JsonOption, print_json, print_secret, print_table, tell
from holdfast.client.delivery_operator import Wish
from holdfast.model.delivery import ENDS, DeliveryEvent, DeliveryRecord, DeliveryState
from holdfast.rules.destination import destination, leads_inside

app = group("Tell URLs what ends, and see whether they were told.")

COLUMNS = ("id", "state", "endpoint", "event", "job", "ended", "carried by", "last problem")
Name = Annotated[str, typer.Argument(help="The name of the endpoint.", metavar="NAME")]


@app.command("list")
def list_deliveries(
    context: typer.Context,
    *,
    endpoint: Annotated[str | None, typer.Option(help="To this endpoint alone.")] = None,
    state: Annotated[DeliveryState | None, typer.Option(help="waiting, delivered or dead.")] = None,
    limit: LimitOption = 50,
    before: BeforeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List deliveries, newest first."""
    show_page(
        context,
        lambda operator: operator.deliveries.find(endpoint=endpoint, state=state, before=before, limit=limit),
        Listing(COLUMNS, _row, nothing="no delivery fits"),
        limit=limit,
        as_json=as_json,
    )


def _row(one: DeliveryRecord, now: datetime) -> tuple[object, ...]:
    problem = None if one.problem is None else one.problem.splitlines()[0][:80]
    return (
        one.id,
        one.state.value,
        one.endpoint,
        one.event,
        one.job_id,
        ago(one.at, now),
        one.carrier_id,
        problem,
    )


@app.command()
def redeliver(
    context: typer.Context,
    delivery_ids: Annotated[list[int], id_argument("Deliveries by id.", "ID...")],
    *,
    reason: ReasonOption = None,
    actor: ActorOption = None,
) -> None:
    """Have deliveries made again, be they dead or delivered."""

    async def work(operator: AnyOperator) -> None:
        for delivery_id in delivery_ids:
            job_id = await operator.deliveries.redeliver(delivery_id, reason)
            tell(f"delivery {delivery_id}: job {job_id}")

    operate(context, work, actor=actor)


@app.command()
def endpoints(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """List who is told of what."""

    async def work(operator: AnyOperator) -> None:
        found = await operator.deliveries.endpoints()
        if as_json:
            print_json(found)
            return
        rows = [
            (one.name, one.url, ", ".join(one.events), ", ".join(one.queues), ", ".join(one.kinds))
            for one in found
        ]
        print_table(("name", "url", "events", "queues", "kinds"), rows, nothing="there is no endpoint")

    operate(context, work)


@app.command()
def add(
    context: typer.Context,
    name: Name,
    url: Annotated[str, typer.Argument(help="Where events are posted to.", metavar="URL")],
    *,
    event: Annotated[
        list[DeliveryEvent] | None,
        typer.Option(help="job.completed and the like; every end of a job if not given.", metavar="EVENT"),
    ] = None,
    queue: Annotated[list[str] | None, typer.Option(help="Of this queue alone.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Of this kind alone.")] = None,
    reason: ReasonOption = None,
    actor: ActorOption = None,
) -> None:
    """Have a URL told of what ends from now on; print the secret that signs, this once."""
    wish = Wish(events=event or ENDS, queues=queue or (), kinds=kind or ())

    async def work(operator: AnyOperator) -> None:
        secret = await operator.deliveries.add(name, url, wish, reason=reason)
        try:
            print_secret(secret)
        except OSError:
            await operator.deliveries.remove(name, "its secret could not be shown")
            raise
        tell(f"{name} is told; its secret is not shown again", err=True)

    operate(context, work, actor=actor)
    host = destination(url).host
    if leads_inside(host) and not invocation(context).settings().deliveries_private:
        wanted = "set deliveries_private where `holdfast serve` or `up` runs"
        tell(f"holdfast: {host} is no public address: {wanted}, or nothing is delivered there", err=True)


@app.command()
def remove(
    context: typer.Context, name: Name, *, reason: ReasonOption = None, actor: ActorOption = None
) -> None:
    """Tell an endpoint nothing more, and forget its deliveries."""

    async def work(operator: AnyOperator) -> None:
        await operator.deliveries.remove(name, reason)
        tell(f"{name} is told nothing more")

    operate(context, work, actor=actor)
