"""The service and two runners as operators would start them: each a process, one of them killed."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from examples.forge.scene import commands
from examples.forge.scene.fleet import BEYOND_GRACE, GRACE
from examples.forge.settings import Settings
from examples.forge.yard.errands import QUEUE

RUNNERS = ("north", "south")
LOOK_EVERY, LONGEST_START = 0.1, 30.0


class CrewEnded(Exception):
    """The service or a runner ended that nobody told to."""


class Crew:
    """Processes that run while entered, with logs in *folder*.

    A runner takes *slots* commands at once, and is lost after *lost_after* seconds of silence.
    """

    def __init__(self, settings: Settings, folder: Path, *, slots: int, lost_after: float) -> None:
        self._settings, self._folder, self._slots = settings, folder, slots
        self._lost_after = lost_after
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.exit_codes: dict[str, int] = {}
        self.address = ""

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._muster()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def token(self, name: str, role: str) -> str:
        """Make a token as an operator does, on the database."""
        return commands.run(self._settings, "tokens", "create", name, "--role", role).strip()

    def _muster(self) -> None:
        registrar = self.token("machines", "registrar")
        known = commands.environment(self._settings)
        silence = {"HOLDFAST_RUNNER_LOST_AFTER": f"{self._lost_after:g}s"}
        self._start("service", known | silence, "serve", "--port=0")
        self.address = self._served_at()
        # A runner knows neither the database nor the forge.
        strange = {n: v for n, v in known.items() if not n.startswith(("HOLDFAST_", "FORGE_"))}
        for name in RUNNERS:
            options = (f"--name={name}", f"--slots={self._slots}", f"--queues={QUEUE}", "--label=git")
            variables = strange | {"HOLDFAST_SERVER": self.address, "HOLDFAST_TOKEN": registrar}
            self._start(name, variables, "runner", *options, f"--grace={GRACE:g}s")

    def _start(self, name: str, variables: Mapping[str, str], *arguments: str) -> None:
        with self._log(name).open("wb") as log:
            self.processes[name] = subprocess.Popen(
                commands.command(*arguments, "--log-format=json"),
                cwd=self._folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _served_at(self) -> str:
        """Read in the service's log where it listens."""
        deadline = time.monotonic() + LONGEST_START
        while time.monotonic() < deadline:
            for line in self._log("service").read_text("utf-8").splitlines():
                if '"web.served"' in line:
                    address: str = json.loads(line)["address"]
                    return address
            self.check()
            time.sleep(LOOK_EVERY)
        msg = f"the service does not serve: {self._last_words('service')}"
        raise CrewEnded(msg)

    def check(self) -> None:
        """Raise `CrewEnded` where somebody ended although nobody told them to."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                msg = f"{name} ended with {process.returncode}: {self._last_words(name)}"
                raise CrewEnded(msg)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _last_words(self, name: str) -> str:
        return self._log(name).read_text("utf-8", errors="replace").strip()[-1000:] or "it said nothing"

    def kill(self, name: str) -> None:
        """Kill a runner with SIGKILL."""
        process = self.processes.pop(name)
        process.kill()
        self.exit_codes[name] = process.wait()

    def stop(self) -> None:
        """Ask the runners to stop, then the service; kill who has not within its grace."""
        for names in (RUNNERS, ("service",)):
            going = {name: self.processes.pop(name) for name in names if name in self.processes}
            for process in going.values():
                process.terminate()
            for name, process in going.items():
                try:
                    self.exit_codes[name] = process.wait(GRACE + BEYOND_GRACE)
                except subprocess.TimeoutExpired:
                    process.kill()
                    self.exit_codes[name] = process.wait()
