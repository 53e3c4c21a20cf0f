"""Writes docs/reference/cli.md from the commands' help, and from the model for the names of ``--json``.

The prose is written by hand; what stands between two markers is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import typer.main

from holdfast.cli.main import app
from holdfast.client.wire.schedules import ScheduleSummary
from holdfast.client.wire.workers import WorkerStory
from holdfast.model.assignment import ArtifactRecord
from holdfast.model.audit import AuditRecord
from holdfast.model.delivery import DeliveryRecord, Endpoint
from holdfast.model.health import Finding
from holdfast.model.job import AttemptRecord, JobRecord, JobSummary
from holdfast.model.run import Family, RunNode, RunSummary, StepSummary, Suspension, UnreadSignal
from holdfast.model.step import ActivityRecord, StepRecord
from holdfast.model.token import TokenRecord
from holdfast.model.worker import QueueRecord, WorkerRecord

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
BETWEEN = re.compile(
    r"(?P<head><!-- (?P<part>\w+): made by `make generate` -->\n).*?(?P<tail><!-- end of (?P=part) -->)",
    re.DOTALL,
)
WIDTH = 100


def named(shape: Any) -> tuple[str, ...]:
    """Return the names of a dataclass or of a struct."""
    return tuple(one.name for one in fields(shape)) if is_dataclass(shape) else shape.__struct_fields__


NAMES = {
    "jobs list": named(JobSummary),
    "jobs show: job": named(JobRecord),
    "jobs show: job.attempts": named(AttemptRecord),
    "jobs show: audit; audit": named(AuditRecord),
    "runs list; runs show: tree.run": named(RunSummary),
    "runs list: suspension": named(Suspension),
    "runs show: tree": named(RunNode),
    "runs show: tree.steps": named(StepSummary),
    "runs show: tree.signals": named(UnreadSignal),
    "runs show: tree.families": named(Family),
    "runs history": named(ActivityRecord),
    "runs history --steps": named(StepRecord),
    "queues list": named(QueueRecord),
    "workers list": named(WorkerRecord),
    "schedules list": named(ScheduleSummary),
    "workers show": named(WorkerStory),
    "jobs artifacts": named(ArtifactRecord),
    "tokens list": named(TokenRecord),
    "deliveries list": named(DeliveryRecord),
    "deliveries endpoints": named(Endpoint),
    "doctor": named(Finding),
    "settings": ("setting", "value", "source", "about"),
}


def commands() -> str:
    """Return the help of every command, under a heading of its name."""
    parts = [
        f"\n## {context.command_path}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"
        for command, context in every_command()
    ]
    return "".join(parts) + "\n"


def every_command() -> Iterator[tuple[Any, Any]]:
    """Yield every command with its context, a group before what is in it."""
    todo: list[tuple[Any, Any]] = [(typer.main.get_command(app), None)]
    while todo:
        command, parent = todo.pop(0)
        name = "holdfast" if parent is None else command.name
        context = command.context_class(
            command, info_name=name, parent=parent, terminal_width=WIDTH, max_content_width=WIDTH
        )
        yield command, context
        todo = [(child, context) for child in getattr(command, "commands", {}).values()] + todo


def names() -> str:
    """Return a table of the names that ``--json`` prints."""
    rows = [
        f"| `{command}` | {', '.join(f'`{name}`' for name in shown)} |\n" for command, shown in NAMES.items()
    ]
    return "| command | names |\n|---|---|\n" + "".join(rows)


PARTS = {"commands": commands, "names": names}


def renewed() -> str:
    """Return the text of the page with its parts as the code has them now."""
    page = PAGE.read_text("utf-8")
    found = {match["part"] for match in BETWEEN.finditer(page)}
    if found != PARTS.keys():
        msg = f"docs/reference/cli.md has lost the markers of {', '.join(sorted(PARTS.keys() - found))}"
        raise SystemExit(msg)
    return BETWEEN.sub(lambda match: match["head"] + PARTS[match["part"]]() + match["tail"], page)


if __name__ == "__main__":
    PAGE.write_text(renewed(), "utf-8")
