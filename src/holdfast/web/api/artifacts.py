"""Files that runners left, as the bytes they are; a job's list of them is in its story."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, Router
from litestar.params import Parameter

from holdfast import errors
from holdfast.web.api.routes import Id, look
from holdfast.web.given import GivenOperator

Attempt = Annotated[int, Parameter(ge=1, le=2**31 - 1)]
Name = Annotated[str, Parameter(min_length=1, max_length=300)]
# Never shown as a page of this origin, whatever a program wrote.
SAVED = {"X-Content-Type-Options": "nosniff", "Content-Disposition": "attachment"}


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


router = Router("/jobs", route_handlers=[read_artifact], tags=["jobs"])
