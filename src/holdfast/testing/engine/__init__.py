"""Tests that every implementation of `holdfast.engine`'s interfaces has to pass.

Subclass `EngineConformance` in a test module and give it a fixture ``ground``; pytest-asyncio in its auto
mode runs the tests:

    class TestMine(EngineConformance):
        @pytest.fixture
        async def ground(self): yield MyGround()
"""

from holdfast.testing.engine.ground import KIND, EngineGround
from holdfast.testing.engine.queue import QueueConformance
from holdfast.testing.engine.records import CheckpointConformance, WatchConformance
from holdfast.testing.engine.signals import FenceConformance, SignalConformance


class EngineConformance(
    QueueConformance, FenceConformance, CheckpointConformance, WatchConformance, SignalConformance
):
    """Everything that is asked of an implementation."""


__all__ = [
    "KIND",
    "CheckpointConformance",
    "EngineConformance",
    "EngineGround",
    "FenceConformance",
    "QueueConformance",
    "SignalConformance",
    "WatchConformance",
]
