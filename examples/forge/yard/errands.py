"""The errands of the second act: commands on the repositories that the first act has left, useful ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUEUE = "yard"
# What a command sees of git's settings: none of whoever runs the demo.
GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
PATIENCE, TRIES, REST = 60.0, 3, 0.3

# A witness beside every command: each line is in a file of ours before the runner can see it.
WITNESSED = """\
trap : INT
said="$TMPDIR/said"; mkfifo "$said"
while IFS= read -r line; do
    printf '%s\\n' "$line" >>"$WITNESS/$RUNNER_JOB-$RUNNER_ATTEMPT"
    printf '%s\\n' "$line"
done <"$said" &
(
{script}
) >"$said" 2>&1
code=$?
wait
exit $code
"""


@dataclass(frozen=True, slots=True)
class Errand:
    """A command: its *title*, what it runs, how it has to end, the files it has to leave."""

    title: str
    script: str
    outcome: str = "completed"
    artifact: str | None = None


PATROL = Errand(
    "patrol",
    "trap 'echo called back; exit 130' INT\n"
    'while :; do git -C "$REPOSITORY" fsck --connectivity-only && echo all is well; sleep 0.4; done',
    "cancelled",
)
WALK = Errand(
    "walk",
    'git -C "$REPOSITORY" rev-list --all | head -n 30 | while read -r commit; do\n'
    '    git -C "$REPOSITORY" show --stat --oneline "$commit"; sleep 0.12\n'
    "done",
)
CLONE = 'git clone --quiet "$REPOSITORY" copy && cd copy\n'
ERRANDS = (
    PATROL,
    WALK,
    Errand("fsck", 'git -C "$REPOSITORY" fsck --full --strict && echo sound'),
    WALK,
    Errand(
        "archive",
        'git -C "$REPOSITORY" archive --format=tar.gz -o "$PWD/main.tar.gz" main\ntar -tzf main.tar.gz',
        artifact="main.tar.gz",
    ),
    Errand("show what is not there", 'git -C "$REPOSITORY" show no-such-branch', "failed"),
    WALK,
    Errand("grep", 'git -C "$REPOSITORY" grep -c history main'),
    Errand("test the notes", CLONE + 'for note in notes/*; do test -s "$note" && echo "ok $note"; done'),
    Errand("grep in vain", 'git -C "$REPOSITORY" grep -n "a typo" main', "failed"),
    Errand(
        "bundle",
        'git -C "$REPOSITORY" bundle create --quiet "$PWD/all.bundle" --all\n'
        'git -C "$REPOSITORY" bundle list-heads "$PWD/all.bundle"',
        artifact="all.bundle",
    ),
    Errand("gc", CLONE + "git gc --quiet --aggressive && git count-objects -v"),
    WALK,
    Errand(
        "test that notes are short",
        CLONE
        + 'for note in notes/*; do test "$(wc -l <"$note")" -lt 12 || { echo "long: $note"; exit 3; }; done',
        "failed",
    ),
    Errand("count", 'git -C "$REPOSITORY" count-objects -v'),
    Errand("list everything", 'git -C "$REPOSITORY" rev-list --objects --all'),
    WALK,
    Errand("log", 'git -C "$REPOSITORY" log --graph --oneline --all'),
    Errand("who", 'git -C "$REPOSITORY" shortlog --summary --all'),
    Errand("fsck again", 'git -C "$REPOSITORY" fsck --full && echo sound'),
)


def job_of(errand: Errand, repository: Path, witness: Path) -> dict[str, Any]:
    """Return a job for runners, as the service takes it."""
    args: dict[str, Any] = {
        "script": WITNESSED.format(script=errand.script),
        "env": GIT | {"REPOSITORY": str(repository), "WITNESS": str(witness)},
    }
    if errand.artifact is not None:
        args["artifacts"] = [errand.artifact]
    return {
        "kind": "command",
        "args": args,
        "queue": QUEUE,
        "timeout": PATIENCE,
        "max_attempts": TRIES,
        "retry": {"kind": "constant", "delay": REST, "jitter": 0},
        "tags": [errand.title],
        "labels": ["git"],
    }
