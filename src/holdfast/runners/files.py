"""Specs that runners read, and artifacts that they leave."""

from __future__ import annotations

from hashlib import sha256

from holdfast.app.options import checked_text
from holdfast.errors import ArtifactDiffers, ArtifactsTooMany, PayloadTooLarge, SpecInvalid
from holdfast.model.assignment import ArtifactLimits
from holdfast.runners.ends import stale
from holdfast.store import artifacts, assignments
from holdfast.store.assignments import Spec
from holdfast.store.attempts import Fence
from holdfast.store.database import Database

LIMITS = ArtifactLimits()


class Files:
    """Hands out specs as they were frozen; keeps artifacts, whose first bytes stay."""

    def __init__(self, database: Database, limits: ArtifactLimits = LIMITS) -> None:
        self._database, self._limits = database, limits

    async def spec(self, fence: Fence, worker_id: int) -> Spec:
        """Return the spec of a held assignment; raises `AssignmentStale`, `SpecInvalid`."""
        spec = await self._database.run(assignments.read_spec(fence, worker_id))
        if spec is None:
            raise await stale(self._database, fence)
        if sha256(spec.text.encode()).hexdigest() != spec.sha256:
            raise SpecInvalid("spec-mismatch", f"job {fence.job_id} is not what was enqueued")
        return spec

    async def keep(self, fence: Fence, worker_id: int, name: str, data: bytes) -> bool:
        """Keep a file; False: the same bytes were there already.

        Raises `AssignmentStale`, `ArtifactDiffers`, `PayloadTooLarge`, `ArtifactsTooMany`.
        """
        limits = self._limits
        checked_text("name", name, most=300)
        if len(data) > limits.file_bytes:
            raise PayloadTooLarge(f"artifact {name!r}", size=len(data), limit=limits.file_bytes)
        storing = artifacts.store_artifact(fence, worker_id, name, data, limits)
        async with self._database.transaction() as connection:
            await self._database.run(artifacts.lock_artifacts(fence.job_id), connection)
            stored = await self._database.run(storing, connection)
        if stored is None:
            raise await stale(self._database, fence)
        if stored.sha256 is None:
            raise ArtifactsTooMany(name, count=limits.count, total_bytes=limits.total_bytes)
        if stored.sha256 != sha256(data).hexdigest():
            raise ArtifactDiffers(name, stored.sha256)
        return stored.new
