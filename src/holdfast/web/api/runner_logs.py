"""The logs of runners come in, by byte offset."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, Router
from litestar.handlers import patch
from litestar.params import HeaderParameter, Parameter, RawBody
from litestar.types import Scope

from holdfast import errors
from holdfast.model.token import Right
from holdfast.runners.logs import LARGEST_BODY, LARGEST_GAP, LogIntake, LogPatch
from holdfast.store.attempts import Fence
from holdfast.store.log_chunks import StreamKey
from holdfast.web.api.routes import Attempt, Id
from holdfast.web.api.runners import STALE, runner_of
from holdfast.web.problems import EVERYWHERE, documented

RAISES = (*EVERYWHERE, *STALE, errors.LogOffsetWrong, errors.LogRefused, errors.PayloadTooLarge)

Offset = Annotated[
    int, HeaderParameter(name="Holdfast-Offset", ge=0, le=LARGEST_GAP, description="Where the bytes begin.")
]
Gap = Annotated[
    int,
    HeaderParameter(
        name="Holdfast-Gap", required=False, ge=0, le=LARGEST_GAP, description="So many bytes are lost."
    ),
]


@patch(
    "/assignments/{job:int}/{attempt:int}/logs/{stream:str}",
    right=Right.REPORT,
    express=True,
    status_code=202,
    request_max_body_size=LARGEST_BODY,
    responses=documented(RAISES, takes_body=True),
)
async def append_log(
    job: Id,
    attempt: Attempt,
    *,
    stream: Annotated[str, Parameter(max_length=20, description="stdout, stderr or system")],
    body: RawBody,
    scope: Scope,
    offset: Offset,
    gap: Gap = 0,
) -> Response[None]:
    """Append raw bytes to a log, packed where Content-Encoding says gzip; safe to repeat."""
    fence = Fence(job, attempt)
    runner = runner_of(scope["auth"]).only_for(fence)
    patch = LogPatch(offset, body, packed=_is_packed(scope), gap=gap)
    logs: LogIntake = scope["litestar_app"].state.logs
    place = await logs.append(StreamKey(fence, stream, runner.worker_id), patch)
    headers = {"Holdfast-Offset": str(place.size)}
    if place.cut_at is not None:
        headers["Holdfast-Cut"] = str(place.cut_at)
    if place.cancelling:
        headers["Holdfast-Cancel"] = "requested"
    return Response(None, status_code=202, headers=headers)


def _is_packed(scope: Scope) -> bool:
    coding = dict(scope["headers"]).get(b"content-encoding", b"identity").decode("latin-1").lower()
    if coding not in ("identity", "gzip"):
        raise errors.OptionInvalid("Content-Encoding", coding, "send gzip, or bytes as they are")
    return coding == "gzip"


router = Router("/runner/v1", route_handlers=[append_log], tags=["runner protocol"])
