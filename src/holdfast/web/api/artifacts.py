"""Files that runners left: the list of a job's, and each as the bytes it is."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, Router
from litestar.params import Parameter

from holdfast import errors
from holdfast.model.assignment import ArtifactRecord
from holdfast.web.api.routes import Attempt, Id, look
from holdfast.web.given import GivenOperator

Name = Annotated[str, Parameter(min_length=1, max_length=300)]
# Never shown as a page of this origin, whatever a program wrote.
SAVED = {"X-Content-Type-Options": "nosniff", "Content-Disposition": "attachment"}


@look("/{job_id:int}/artifacts", raises=(errors.JobNotFound,))
async def list_artifacts(job_id: Id, operator: GivenOperator) -> list[ArtifactRecord]:
    """List the files that runners left of a job, later attempts last."""
    return [*await operator.jobs.artifacts(job_id)]


@look(
    "/{job_id:int}/attempts/{attempt:int}/artifacts/{name:path}",
    raises=(errors.ArtifactNotFound,),
    media_type="application/octet-stream",
)
async def read_artifact(job_id: Id, attempt: Attempt, name: Name, operator: GivenOperator) -> Response[bytes]:
    """Give the bytes of a file that an attempt left."""
    # The rest of a path begins with its slash.
    data = await operator.jobs.artifact(job_id, attempt, name.removeprefix("/"))
    return Response(data, media_type="application/octet-stream", headers=SAVED)


router = Router("/jobs", route_handlers=[list_artifacts, read_artifact], tags=["jobs"])
