"""The logs of runners as the bytes they are."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from litestar import Response, Router
from litestar.params import Parameter, QueryParameter

from holdfast import errors
from holdfast.client.log_reader import LogReader
from holdfast.runners.logs import LARGEST_GAP
from holdfast.store.attempts import Fence
from holdfast.store.log_chunks import LogStream
from holdfast.web.api.routes import Attempt, Id, look
from holdfast.web.given import GivenBacking

MOST = 4 * 1024 * 1024

Name = Annotated[str, Parameter(max_length=20)]


class StreamRecord(msgspec.Struct, frozen=True):
    """How a stream stands.

    Of its *size* in bytes, *kept* can be read; at *cut_at* the limit of its job cut it off.  Once it is
    closed, *intact* says whether it is what its runner wrote: by its *sha256*, in hex.
    """

    attempt: int
    stream: str
    size: int
    kept: int
    cut_at: int | None
    written_at: datetime
    closed_at: datetime | None
    sha256: str | None
    intact: bool | None


@look("/{job_id:int}/logs/streams", raises=(errors.JobNotFound,))
async def list_streams(job_id: Id, backing: GivenBacking) -> list[StreamRecord]:
    """List the streams that runners sent for a job; none where no runner had it."""
    return [_shown(one) for one in await LogReader(backing.database).streams_of(job_id)]


@look(
    "/{job_id:int}/attempts/{attempt:int}/logs/{stream:str}",
    raises=(errors.LogNotFound,),
    media_type="application/octet-stream",
)
async def read_bytes(
    job_id: Id,
    attempt: Attempt,
    stream: Name,
    backing: GivenBacking,
    offset: Annotated[int, QueryParameter(ge=0, le=LARGEST_GAP)] = 0,
    limit: Annotated[int, QueryParameter(ge=1, le=MOST)] = MOST,
) -> Response[bytes]:
    """Give the bytes of a stream from *offset* on, as far as the next gap, at most 4 MiB.

    The next ones begin at Holdfast-Next, and the stream has Holdfast-Size.  Where bytes are missing at
    *offset*, the body is empty and Holdfast-Gap says how many.
    """
    span = await LogReader(backing.database).span(Fence(job_id, attempt), stream, offset, limit)
    if span is None:
        raise errors.LogNotFound(job_id, attempt, stream)
    headers = {"Holdfast-Next": str(span.end), "Holdfast-Size": str(span.stream.size)}
    if span.gap:
        headers["Holdfast-Gap"] = str(span.gap)
    # Never shown as a page of this origin, whatever a program wrote.
    headers["X-Content-Type-Options"] = "nosniff"
    return Response(span.data, media_type="application/octet-stream", headers=headers)


def _shown(one: LogStream) -> StreamRecord:
    return StreamRecord(
        one.attempt,
        one.stream,
        one.size,
        one.kept,
        one.cut_at,
        one.written_at,
        one.closed_at,
        None if one.sha256 is None else one.sha256.hex(),
        one.intact,
    )


router = Router("/jobs", route_handlers=[list_streams, read_bytes], tags=["jobs"])
