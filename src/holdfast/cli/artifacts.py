"""`holdfast jobs artifacts`: the files that runners left of a job, listed and fetched."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path, PurePath, PurePosixPath
from typing import Annotated

import typer

from holdfast.cli.ids import id_argument
from holdfast.cli.operating import AnyOperator, operate
from holdfast.cli.output import JsonOption, print_json, print_table, tell
from holdfast.cli.runner_story import ARTIFACTS, artifact_row
from holdfast.errors import ArtifactDamaged, OptionInvalid
from holdfast.model.assignment import ArtifactRecord


def artifacts(
    context: typer.Context,
    job_id: Annotated[int, id_argument("The id of the job.")],
    *,
    attempt: Annotated[int | None, typer.Option(help="Of this attempt alone.")] = None,
    name: Annotated[
        list[str] | None, typer.Option(help="Only the file of this name; may be repeated.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Fetch them into this folder; of each name the newest attempt's.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the files that runners left of a job, or fetch them with --out."""

    async def work(operator: AnyOperator) -> None:
        found = await _find(operator, job_id, attempt, name or ())
        if out is not None:
            found = sorted({one.name: one for one in found}.values(), key=lambda one: _leads_out(one.name))
            for one in found:
                path = _place(out, one.name)
                _save(path, await operator.jobs.artifact(job_id, one.attempt, one.name), one)
        if as_json:
            print_json(found)
        elif out is None:
            print_table(ARTIFACTS, [artifact_row(one) for one in found], nothing="no artifact")
        else:
            tell(f"{len(found)} in {out}" if found else "no artifact")

    operate(context, work)


async def _find(
    operator: AnyOperator, job_id: int, attempt: int | None, names: Sequence[str]
) -> list[ArtifactRecord]:
    """Return the artifacts that are meant, those of later attempts last."""
    left = await operator.jobs.artifacts(job_id)
    found = [one for one in left if attempt in (None, one.attempt) and (not names or one.name in names)]
    if missing := set(names) - {one.name for one in found}:
        wanted = "give a name as `holdfast jobs artifacts ID` lists it"
        raise OptionInvalid("--name", min(missing), wanted)
    return found


def _leads_out(name: str) -> bool:
    """Tell whether a name is none for a file below a folder."""
    parts = PurePosixPath(name).parts
    # A letter like any other on the runner's machine may part folders, or name a drive, on this one.
    return not parts or ".." in parts or "\x00" in name or any(PurePath(part).name != part for part in parts)


def _place(folder: Path, name: str) -> Path:
    """Return where an artifact is saved: nowhere but below *folder*, whatever its runner has called it."""
    if _leads_out(name):
        raise OptionInvalid("artifact", name, "its name leads out of the folder; all others are saved")
    return folder.joinpath(*PurePosixPath(name).parts)


def _save(path: Path, data: bytes, expected: ArtifactRecord) -> None:
    if sha256(data).hexdigest() != expected.sha256:
        raise ArtifactDamaged(expected.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
