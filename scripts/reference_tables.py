"""Writes the tables of docs/reference/settings.md, metrics.md, errors.md and http-api.md from the code.

The prose around a table is written by hand; what stands between the two markers is replaced.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from litestar import Litestar

import holdfast
from holdfast.client.intake import Intake
from holdfast.errors import HoldfastError
from holdfast.model.problem import problem_type
from holdfast.model.token import Right, Role
from holdfast.rules.access import allows
from holdfast.runtime.events import Events
from holdfast.runtime.metrics import Metrics
from holdfast.runtime.settings import Settings
from holdfast.store.database import Database, DatabaseConfig
from holdfast.web.config import WebConfig
from holdfast.web.problems import status_of
from holdfast.web.server import WebServer

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
BETWEEN = re.compile(r"(?<=<!-- table: made by `make generate` -->\n).*?(?=<!-- end of table -->)", re.DOTALL)
# Counters are asked for under their name with this ending.
ENDING = {"counter": "_total"}


def settings_table() -> str:
    """One row for each setting."""
    rows = [
        (
            f"`{one.name}`",
            f"`HOLDFAST_{one.name.upper()}`",
            _shown(one.default),
            one.metadata["rule"].allowed,
            one.metadata["about"],
        )
        for one in fields(Settings)
    ]
    return _table(("setting", "variable", "default", "allowed", "what it is"), rows)


def metrics_table() -> str:
    """One row for each metric that a process serves."""
    rows = [
        (
            f"`{metric.name}{ENDING.get(metric.type, '')}`",
            metric.type,
            ", ".join(_labels(metric)) or "–",
            metric.documentation,
        )
        for metric in sorted(_metrics(), key=lambda metric: metric.name)
    ]
    return _table(("metric", "type", "labels", "what it counts"), rows)


def _metrics() -> list[Any]:
    from datetime import UTC, datetime

    from holdfast.model.worker import QueueRecord

    metrics = Metrics(["kind"])
    now = datetime.now(UTC)
    metrics.queues = lambda: [QueueRecord("queue", False, None, 1, False, None, 0, 0, 0, 0, now, now)]
    # A metric with labels has no sample, and so tells no labels, before something was counted.
    metrics("service.failed", {"service": "service", "error": ValueError()})
    metrics("lease.delayed", {})
    metrics("request.ended", {"method": "GET", "route": "/", "status": 200, "seconds": 0.0})
    metrics("assignments.ended", {"outcomes": {"completed": 1}})
    metrics("assignments.taken", {"fates": {1: "retried"}})
    return list(metrics.registry.collect())


def _labels(metric: Any) -> list[str]:
    found: dict[str, None] = {}
    for sample in metric.samples:
        found |= dict.fromkeys(label for label in sample.labels if label != "le")
    return list(found)


def _shown(value: Any) -> str:
    if value is None or value == ():
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float):
        unit, letter = next(one for one in ((86_400, "d"), (3_600, "h"), (1, "s")) if value >= one[0])
        return f"`{value / unit:g}{letter}`"
    return f"`{value}`"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def errors_table() -> str:
    """One row for each error, parents before their children."""
    rows = [
        (
            f"`{error.__name__}`" if error.__name__ in holdfast.__all__ else f"`errors.{error.__name__}`",
            "–" if error.__base__ in (None, Exception) else f"`{error.__base__.__name__}`",
            (error.__doc__ or "").partition("\n")[0],
        )
        for error in _family(HoldfastError)
    ]
    return _table(("error", "is a", "means"), rows)


def _family(error: type[HoldfastError]) -> list[type[HoldfastError]]:
    # What other modules make of these errors is not raised for users to catch by name.
    own = [child for child in error.__subclasses__() if child.__module__ == error.__module__]
    return [error, *(one for child in own for one in _family(child))]


def http_tables() -> str:
    """The routes of the service, the rights of roles, and the problems with their statuses."""
    return f"## Routes\n\n{_routes()}\n## Roles and rights\n\n{_rights()}\n## Problems\n\n{_problems()}"


def _routes() -> str:
    rows = []
    for route in sorted(_service().routes, key=lambda route: str(route.path_format)):
        for handler in sorted(getattr(route, "route_handlers", ()), key=lambda one: min(one.http_methods)):
            methods = handler.http_methods - {"OPTIONS", "HEAD"}
            right = handler.opt.get("right")
            if methods and route.path_format != "/schema/{path}":
                about = (inspect.getdoc(handler.fn) or "").partition("\n")[0].replace("|", "\\|")
                rows.append((f"`{min(methods)} {route.path_format}`", right or "–", about))
    return _table(("route", "right", "what it does"), rows)


def _rights() -> str:
    rows = [(role.value, *("yes" if allows(role, right) else "" for right in Right)) for role in Role]
    return _table(("role", *(right.value for right in Right)), rows)


def _problems() -> str:
    rows = [
        (
            f"`{problem_type(error).rpartition(':')[2]}`",
            str(status_of(error)),
            (error.__doc__ or "").partition("\n")[0],
        )
        for error in _family(HoldfastError)
        if status_of(error) != 500
    ]
    return _table(("type", "status", "means"), rows)


def _service() -> Litestar:
    server = WebServer(
        WebConfig(),
        Database(DatabaseConfig(dsn="postgresql://nowhere/none")),
        Events(),
        intake=Intake(None, {}),
        metrics=Metrics(()),
        lives=lambda: True,
        ready=lambda: True,
    )
    return server.application


TABLES = {
    "settings.md": settings_table,
    "metrics.md": metrics_table,
    "errors.md": errors_table,
    "http-api.md": http_tables,
}


def renewed(name: str) -> str:
    """Return the text of a page with its table as the code has it now."""
    page = (FOLDER / name).read_text("utf-8")
    if not BETWEEN.search(page):
        msg = f"docs/reference/{name} has lost the markers of its table"
        raise SystemExit(msg)
    return BETWEEN.sub(lambda _: TABLES[name](), page)


if __name__ == "__main__":
    for page in TABLES:
        (FOLDER / page).write_text(renewed(page), "utf-8")
