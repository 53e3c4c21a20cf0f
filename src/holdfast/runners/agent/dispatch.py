"""Chooses what to do for an assignment."""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import SpecInvalid
from holdfast.model.placement import COMMAND
from holdfast.runners.agent.command import CommandWork
from holdfast.runners.agent.config import AgentConfig
from holdfast.runners.agent.handling import HandlerWork
from holdfast.runners.agent.messages import Assignment
from holdfast.runners.agent.spec import Spec, read_command
from holdfast.runners.agent.work import Progress, Work


def work_for(
    assignment: Assignment, spec: Spec, folder: Path, config: AgentConfig, progress: Progress
) -> Work:
    """Return the work of an assignment; raises `SpecInvalid` where this runner cannot do it."""
    if spec.kind == COMMAND:
        return CommandWork(assignment, read_command(spec), folder, config.environment, spec.timeout)
    if config.app is None or spec.kind not in config.kinds:
        raise SpecInvalid("kind-unknown", f"this runner does not know kind {spec.kind!r}")
    return HandlerWork(assignment, spec, folder, config, progress)
