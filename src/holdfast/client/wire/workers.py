"""What is asked of workers over HTTP."""

from __future__ import annotations

import msgspec


class Draining(msgspec.Struct, frozen=True):
    """The worker takes nothing more."""

    id: int


class Resumed(msgspec.Struct, frozen=True):
    """The runner takes jobs again."""

    id: int
