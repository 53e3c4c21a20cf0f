"""What of a look at many jobs is news: a look sees again what the last one saw."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from holdfast.model.change import Change

MOST_REMEMBERED = 50_000

_Face = tuple[str, int, int, float | None, str | None, bool]


class Sight:
    """Remembers how jobs stood when they were last told; of very many, those that changed last."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._told: OrderedDict[int, _Face] = OrderedDict()

    def news(self, seen: Iterable[Change]) -> list[Change]:
        """Return what differs from what was told of the same job before, in order."""
        fresh = [change for change in seen if self._is_new(change)]
        while len(self._told) > self._most:
            self._told.popitem(last=False)
        return fresh

    def _is_new(self, change: Change) -> bool:
        face = _face(change)
        if self._told.get(change.job_id) == face:
            return False
        self._told[change.job_id] = face
        self._told.move_to_end(change.job_id)
        return True


def _face(change: Change) -> _Face:
    return (
        change.state,
        change.attempt,
        change.failures,
        change.progress,
        change.note,
        change.cancelling,
    )
