"""Puts the forge together: all its kinds in one Holdfast application."""

from __future__ import annotations

import holdfast
from examples.forge.forge import Forge
from examples.forge.kinds import imports, purge, push, size, trending
from examples.forge.settings import Settings


def build(settings: Settings) -> Forge:
    """Return the forge with every kind and schedule registered.

    Its client is never opened: it enqueues on connections that handlers have open already.
    """
    forge = Forge(settings, holdfast.App(), holdfast.SyncClient(settings.database_url))
    for kind in (push, size, imports, purge, trending):
        kind.register(forge)
    return forge
