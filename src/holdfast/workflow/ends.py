"""How one pass through the code of a run may end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.model.outcome import Suspend


@dataclass(frozen=True, slots=True)
class Returned:
    """The code came to its end."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The code ended with an error."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Frozen:
    """Everything recorded was replayed, and the code asks for more."""


@dataclass(frozen=True, slots=True)
class Continued:
    """The code asked to begin anew with other arguments (JSON text)."""

    args: str


Ended = Returned | Raised | Frozen | Continued | Suspend
