"""What a worker loads: ``holdfast worker --app examples.forge.app:app`` with ``FORGE_SETTINGS`` set."""

from __future__ import annotations

from examples.forge.settings import from_environment
from examples.forge.wiring import build

app = build(from_environment()).app
