"""What each part needs to know of the settings."""

from __future__ import annotations

from typing import Any

from holdfast.app.registry import App
from holdfast.errors import SettingInvalid
from holdfast.maintenance.config import MaintenanceConfig
from holdfast.model.job import DEFAULT_QUEUE
from holdfast.rules.liveness import Intervals
from holdfast.runtime.settings import Settings
from holdfast.store.database import DatabaseConfig
from holdfast.web.config import WebConfig
from holdfast.worker.config import WorkerConfig


def database_config(settings: Settings, **options: Any) -> DatabaseConfig:
    """Return where the database is; raises `SettingInvalid` where nobody said it."""
    if settings.database_url is None:
        msg = "database_url is not set: set HOLDFAST_DATABASE_URL, or database_url in holdfast.toml"
        raise SettingInvalid(msg, setting="database_url")
    return DatabaseConfig(
        dsn=settings.database_url, schema=settings.schema, pgbouncer=settings.pgbouncer, **options
    )


def worker_config(settings: Settings, app: App) -> WorkerConfig:
    """Return how the worker of *app* works."""
    # Claims and reports overlap, the leader has its duties, and handlers may want transactions.
    pool = min(20, 6 + settings.slots)
    return WorkerConfig(
        database=database_config(settings, application_name="holdfast worker", pool_size=pool),
        queues=settings.queues or app.queues() or (DEFAULT_QUEUE,),
        slots=settings.slots,
        ttl=settings.ttl,
        poll=settings.poll,
        grace=settings.grace,
        prefetch=settings.prefetch,
        labels=settings.labels,
        name=settings.name,
        listen=settings.listen,
    )


def maintenance_config(settings: Settings) -> MaintenanceConfig:
    """Return how the leader does its duties."""
    return MaintenanceConfig(
        retention_completed=settings.retention_completed,
        retention_failed=settings.retention_failed,
        retention_logs=settings.retention_logs,
        unknown_grace=settings.unknown_grace,
        offer_for=Intervals.losing_after(settings.runner_lost_after).offer_for,
    )


def web_config(settings: Settings) -> WebConfig:
    """Return how the service is served."""
    return WebConfig(
        host=settings.http_host,
        port=settings.http_port,
        rate=settings.http_rate,
        proxies=settings.http_proxies,
        intervals=Intervals.losing_after(settings.runner_lost_after),
        log_limit=settings.log_limit,
    )
