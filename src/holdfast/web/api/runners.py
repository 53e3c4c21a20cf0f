"""The runner protocol over HTTP; docs/reference/runner-protocol.md is the contract."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, Router
from litestar.handlers import put
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody, Parameter
from litestar.types import Scope

from holdfast import errors
from holdfast.model.token import Caller, Right
from holdfast.runners.desk import Desk
from holdfast.runners.files import LIMITS
from holdfast.runners.hearing import RunnerCaller
from holdfast.runners.messages import (
    Claim,
    Claimed,
    Finish,
    Finished,
    Leave,
    Register,
    Registered,
    Stand,
    Sync,
    Synced,
    Word,
)
from holdfast.store.attempts import Fence
from holdfast.web.api.routes import Attempt, Id, act, look
from holdfast.web.given import AnyRequest
from holdfast.web.problems import EVERYWHERE, documented

ArtifactName = Annotated[str, Parameter(min_length=1, max_length=300)]
STALE = (errors.AssignmentStale, errors.AssignmentForeign, errors.JobNotFound, errors.RunnerSuperseded)
THERE_ALREADY = ResponseSpec(None, description="The same bytes were there already.", generate_examples=False)
_PLACE = "/assignments/{job:int}/{attempt:int}"


def runner_of(caller: Caller) -> RunnerCaller:
    """Return the runner that a token speaks for; raises `AccessDenied` where it speaks for none."""
    token = caller.token
    if token is None or token.worker_id is None:
        raise errors.AccessDenied(caller.role, Right.RUN)
    only = None if token.job_id is None else Fence(token.job_id, token.attempt or 0)
    return RunnerCaller(token.worker_id, token.id, only)


def _desk(scope: Scope) -> Desk:
    """Return the desk of this process."""
    desk: Desk = scope["litestar_app"].state.desk
    return desk


@act(
    "/register",
    Right.REGISTER,
    status=201,
    raises=(errors.ProtocolUnsupported, errors.AccessDenied, errors.RunnerSuperseded),
)
async def register(data: JSONBody[Register], scope: Scope) -> Registered:
    """Register a runner, or begin a new term of the one with this name."""
    caller: Caller = scope["auth"]
    own = None if caller.token is None else caller.token.worker_id
    return await _desk(scope).registrar.register(data, caller.name, own, address=caller.address)


@act("/sync", Right.RUN, raises=(errors.RunnerSuperseded,), express=True, waits=True)
async def sync(data: JSONBody[Sync], scope: Scope) -> Synced:
    """Say everything that a runner holds; the answer is everything it should hold."""
    return await _desk(scope).conversation.sync(runner_of(scope["auth"]), data)


@act("/claim", Right.RUN, raises=(errors.RunnerSuperseded,), express=True, waits=True)
async def claim(data: JSONBody[Claim], scope: Scope) -> Claimed:
    """Ask for assignments, those first that were offered and not accepted."""
    return await _desk(scope).conversation.claim(runner_of(scope["auth"]), data)


@act("/leave", Right.RUN, status=204, raises=(errors.RunnerSuperseded, errors.RunnerHolding))
async def leave(data: JSONBody[Leave], scope: Scope) -> None:  # noqa: ARG001 - a number may come with it
    """Go in good order, holding nothing."""
    await _desk(scope).registrar.leave(runner_of(scope["auth"]))


@act(f"{_PLACE}/accept", Right.RUN, raises=STALE, express=True)
async def accept(job: Id, attempt: Attempt, data: JSONBody[Word], scope: Scope) -> Stand:
    """Accept an offer."""
    return await _desk(scope).conversation.say(
        runner_of(scope["auth"]), Fence(job, attempt), data, running=False
    )


@act(f"{_PLACE}/start", Right.REPORT, raises=STALE, express=True)
async def start(job: Id, attempt: Attempt, data: JSONBody[Word], scope: Scope) -> Stand:
    """Say that an assignment has begun."""
    return await _desk(scope).conversation.say(
        runner_of(scope["auth"]), Fence(job, attempt), data, running=True
    )


@act(f"{_PLACE}/progress", Right.REPORT, raises=STALE, express=True)
async def progress(job: Id, attempt: Attempt, data: JSONBody[Word], scope: Scope) -> Stand:
    """Say how far an assignment is, or that it lives."""
    return await _desk(scope).conversation.say(
        runner_of(scope["auth"]), Fence(job, attempt), data, running=True
    )


@act(f"{_PLACE}/finish", Right.REPORT, raises=(*STALE, errors.LogsIncomplete), express=True)
async def finish(job: Id, attempt: Attempt, data: JSONBody[Finish], scope: Scope) -> Finished:
    """Report the end of an assignment; safe to repeat."""
    return await _desk(scope).conversation.finish(runner_of(scope["auth"]), Fence(job, attempt), data)


@look(
    f"{_PLACE}/spec", right=Right.REPORT, raises=(*STALE, errors.SpecInvalid), media_type="application/json"
)
async def spec(job: Id, attempt: Attempt, request: AnyRequest) -> Response[bytes]:
    """Give the bytes of a spec, as they were frozen when the job was enqueued."""
    asked = runner_of(request.auth).only_for(Fence(job, attempt))
    found = await _desk(request.scope).files.spec(Fence(job, attempt), asked.worker_id)
    return Response(found.text.encode(), media_type="application/json", headers={"ETag": f'"{found.sha256}"'})


@put(
    f"{_PLACE}/artifacts/{{name:path}}",
    right=Right.REPORT,
    status_code=201,
    request_max_body_size=LIMITS.file_bytes,
    responses={200: THERE_ALREADY}
    | documented(
        (*EVERYWHERE, *STALE, errors.ArtifactDiffers, errors.ArtifactsTooMany, errors.PayloadTooLarge),
        takes_body=True,
    ),
)
async def keep_artifact(
    job: Id,
    attempt: Attempt,
    name: ArtifactName,
    request: AnyRequest,
) -> Response[None]:
    """Keep a file of an assignment; the first bytes under a name stay."""
    asked = runner_of(request.auth).only_for(Fence(job, attempt))
    # The rest of a path begins with its slash.
    kept = name.removeprefix("/")
    new = await _desk(request.scope).files.keep(
        Fence(job, attempt), asked.worker_id, kept, await request.body()
    )
    return Response(None, status_code=201 if new else 200)


router = Router(
    "/runner/v1",
    route_handlers=[
        *(register, sync, claim, leave, accept, start, progress, finish, spec, keep_artifact),
    ],
    tags=["runner protocol"],
)
