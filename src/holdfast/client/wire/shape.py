"""What many bodies have."""

from __future__ import annotations

from typing import Annotated

import msgspec

LARGEST_ID = 2**63 - 1

Why = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)] | None


class Because(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why something is done; kept in the audit log."""

    reason: Why = None
