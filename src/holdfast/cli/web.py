"""Puts the HTTP service of a process together; only what serves imports this and all it takes."""

from __future__ import annotations

from holdfast.app.registry import App
from holdfast.cli.configs import web_config
from holdfast.cli.delivering import DeliveryWorker
from holdfast.cli.wiring import MaintenanceProcess, Part
from holdfast.client.intake import Intake
from holdfast.runtime.metrics import Metrics
from holdfast.runtime.settings import Settings
from holdfast.web.server import WebServer


class Service:
    """Makes the service of a process; *app* is what it checks jobs against."""

    def __init__(self, settings: Settings, app: App | None) -> None:
        self._settings, self._app = settings, app

    def __call__(self, process: MaintenanceProcess, metrics: Metrics) -> Part:
        """Return the service that *process* is to run."""
        server = WebServer(
            web_config(self._settings),
            process.database,
            process.events,
            intake=Intake(self._app, {}),
            metrics=metrics,
            lives=process.lives,
            ready=process.ready,
        )
        if process.notifications is not None:
            server.listen_to(process.notifications)
        process.parts.append(DeliveryWorker(process, private=self._settings.deliveries_private))
        return server
