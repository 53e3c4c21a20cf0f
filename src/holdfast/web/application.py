"""Puts the routes together behind one gate."""

from __future__ import annotations

from litestar import Litestar, Router
from litestar.datastructures import State
from litestar.exceptions import HTTPException, ImproperlyConfiguredException
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from holdfast import __version__
from holdfast.errors import HoldfastError
from holdfast.web.api import (
    artifacts,
    audit,
    deliveries,
    health,
    job_acts,
    job_logs,
    jobs,
    live,
    log_bytes,
    queues,
    run_acts,
    runner_logs,
    runners,
    runs,
    schedules,
    tokens,
    workers,
)
from holdfast.web.backing import Backing
from holdfast.web.gate import Gate
from holdfast.web.given import providers
from holdfast.web.metering import Metering
from holdfast.web.problems import answer_error, answer_fault, answer_http_error
from holdfast.web.queries import Queries
from holdfast.web.requests import JsonRequest

API = "/api/v1"
ROUTERS = (
    jobs.router,
    job_acts.router,
    job_logs.router,
    log_bytes.router,
    artifacts.router,
    queues.router,
    workers.router,
    schedules.router,
    runs.router,
    run_acts.router,
    tokens.router,
    audit.router,
    live.router,
    deliveries.router,
)
RUNNER_ROUTERS = (runners.router, runner_logs.router)


def application(backing: Backing, gate: Gate) -> Litestar:
    """Return the service as an ASGI application."""
    queries = Queries()
    made = Litestar(
        route_handlers=[health.router, *RUNNER_ROUTERS, Router(API, route_handlers=[*ROUTERS])],
        guards=[gate, queries],
        middleware=[Metering(backing.events)],
        dependencies=providers(backing, gate),
        exception_handlers={
            HoldfastError: answer_error,
            HTTPException: answer_http_error,
            Exception: answer_fault,
        },
        request_class=JsonRequest,
        request_max_body_size=backing.config.body_limit,
        openapi_config=_schema(),
        logging_config=None,
        state=State({"events": backing.events, "desk": backing.desk, "logs": backing.logs}),
    )
    _check_rights(made)
    queries.learn(made)
    return made


def _schema() -> OpenAPIConfig:
    bearer = SecurityScheme(type="http", scheme="bearer", description="A token of `holdfast tokens create`.")
    return OpenAPIConfig(
        title="Holdfast",
        version=__version__,
        description="A control plane for work with PostgreSQL as its only moving part.",
        openapi_router=Router("/schema", route_handlers=[], include_in_schema=False, opt={"right": None}),
        render_plugins=[JsonRenderPlugin(path="/")],
        components=Components(security_schemes={"token": bearer}),
        security=[{"token": []}],
        use_handler_docstrings=True,
    )


def _check_rights(made: Litestar) -> None:
    """Let no route be served that does not say what it asks of its caller."""
    for route in made.routes:
        for handler in getattr(route, "route_handlers", ()):
            # Litestar itself answers OPTIONS, which says no more than the schema.
            is_ours = isinstance(handler, HTTPRouteHandler) and handler.http_methods != {"OPTIONS"}
            if is_ours and "right" not in handler.opt:
                msg = f"{route.path} does not say which right it takes"
                raise ImproperlyConfiguredException(msg)
