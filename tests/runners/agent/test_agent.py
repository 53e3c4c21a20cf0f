"""The runner program against a server over real HTTP: what it runs, reports, keeps and survives."""

import asyncio
import errno
import hashlib
import os
import shutil
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import FolderUnwritable, RunnerBusy, ServerRefused
from holdfast.model.assignment import ArtifactLimits
from holdfast.runners.agent.messages import Fence, Report
from holdfast.runners.agent.state import StateFolder
from holdfast.testing import Probe
from tests.runners.agent.conftest import Gate
from tests.runners.agent.counterpart import Counterpart, Entry

# Whoever writes here meets a full disk.
FULL = Path("/dev/full")
needs_full_disk = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


async def ended(counterpart: Counterpart, entry: Entry, timeout: float = 15.0) -> dict[str, Any]:
    """The report of an assignment, once it is there."""
    await counterpart.until(lambda: entry.report is not None, timeout)
    assert entry.report is not None
    return entry.report


async def test_a_command_runs_and_its_result_is_reported(counterpart: Counterpart, runner: Any) -> None:
    """Exit code, usage and both streams reach the server, whole."""
    await runner(labels=("gpu",), slots=2)
    entry = await counterpart.offer(script="echo out; echo err >&2; pwd", env={"A": "1"})
    report = await ended(counterpart, entry)
    assert report["outcome"] == "completed"
    assert report["result"]["exit_code"] == 0
    assert report["result"]["usage"]["max_rss_bytes"] > 0
    assert entry.log().startswith("out\n")
    assert entry.log("stderr") == "err\n"
    assert report["logs"]["stderr"] == {
        "size": 4,
        "sha256": hashlib.sha256(b"err\n").hexdigest(),
        "gap": False,
    }
    said = counterpart.registrations[0]
    assert (said["labels"], said["slots"], said["kinds"], said["protocols"]) == (["gpu"], 2, ["command"], [1])


@pytest.mark.parametrize(
    ("args", "outcome", "reason"),
    [
        ({"script": "echo broken >&2; exit 3"}, "failed", "exit code 3"),
        ({"script": "kill -KILL $$"}, "failed", "killed by SIGKILL"),
        ({"argv": ["no-such-program"]}, "failed", "ProgramRefused: 'no-such-program' cannot be started"),
        ({"argv": ["pwd"], "cwd": "../.."}, "failed", "arguments-invalid"),
        ({"argv": ["pwd"], "scrpt": "x"}, "failed", "arguments-invalid"),
        ({"argv": []}, "failed", "arguments-invalid"),
        ({"argv": ["true"], "secrets": ["NOT_THERE"]}, "failed", "arguments-invalid"),
        ({"script": "#!/usr/bin/env python3\nprint(1)"}, "completed", ""),
        ({"script": 'test "$(cat)" = given', "stdin": "given"}, "completed", ""),
        (
            {"script": 'test "$(basename $PWD)" = deep -a "$A" = 1', "cwd": "sub/deep", "env": {"A": "1"}},
            "completed",
            "",
        ),
        ({"script": 'test -z "$HOLDFAST_TOKEN"'}, "completed", ""),
    ],
)
async def test_commands_end_as_they_should(
    args: dict[str, Any], outcome: str, reason: str, counterpart: Counterpart, runner: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Each way to be given and to end has its outcome and says why; its own secrets are not passed on."""
    monkeypatch.setenv("HOLDFAST_TOKEN", "secret")
    await runner()
    report = await ended(counterpart, await counterpart.offer(**args))
    assert report["outcome"] == outcome, report
    assert report.get("reason", "").startswith(reason)
    if reason == "arguments-invalid":
        assert report["retry"] is False
    if reason == "exit code 3":
        assert report["error"] == "broken"


async def test_a_spec_that_was_tampered_with_is_not_run(
    counterpart: Counterpart, runner: Any, tmp_path: Path
) -> None:
    """The runner computes the sum of what it got and refuses another one."""
    entry = await counterpart.offer(script=f"touch {tmp_path}/ran")
    entry.assignment["spec"] = entry.assignment["spec"].replace("ran", "run")
    await runner()
    report = await ended(counterpart, entry)
    assert (report["outcome"], report["reason"], report["retry"]) == ("failed", "spec-mismatch", False)
    assert not (tmp_path / "run").exists()


async def test_a_long_spec_is_fetched(counterpart: Counterpart, runner: Any) -> None:
    """A spec that is not part of the offer is asked for with the assignment's own token."""
    entry = await counterpart.offer(script="echo fetched")
    entry.assignment["long"] = entry.assignment["spec"]
    entry.assignment["spec"] = None
    await runner()
    await ended(counterpart, entry)
    assert entry.log() == "fetched\n"


async def test_output_is_with_the_server_within_200_ms(counterpart: Counterpart, runner: Any) -> None:
    """Lines of a running command arrive while it runs, each soon after it was written."""
    await runner()
    code = "import time\nfor _ in range(5):\n    print(time.time(), flush=True); time.sleep(0.3)"
    typical: list[float] = []
    # A busy machine may hold up one or two lines of a command, and all those of one or two commands.
    while len(typical) < 3 and min(typical, default=1.0) >= 0.2:
        entry = await counterpart.offer(argv=[sys.executable, "-c", code])
        await ended(counterpart, entry)
        delays = [at - float(line) for at, _, body in entry.arrivals for line in body.split()]
        assert len(delays) == 5
        typical.append(sorted(delays)[2])
    assert min(typical) < 0.2


async def test_secrets_do_not_leave_the_runner(counterpart: Counterpart, runner: Any) -> None:
    """The value of a named variable is masked in the log and in the error; so is the runner's own token."""
    await runner()
    script = 'echo "key $KEY"; printf "$KEY" | base64; echo $KEY >&2; cat ../../../token; exit 1'
    entry = await counterpart.offer(script=script, env={"KEY": "hunter2-hunter2"}, secrets=["KEY"])
    report = await ended(counterpart, entry)
    assert entry.log() == "key ***\n***\n***"
    assert report["error"] == "***"


async def test_a_cancel_goes_down_the_ladder(counterpart: Counterpart, runner: Any) -> None:
    """A program that ignores SIGINT is killed after its grace; every rung is reported as it is taken."""
    await runner()
    entry = await counterpart.offer(script="trap 'echo asked' INT; echo up; while :; do sleep 0.05; done")
    await counterpart.until(lambda: "up" in entry.log())
    asked = time.monotonic()
    await counterpart.cancel(entry, grace=3.0)
    report = await ended(counterpart, entry)
    assert report["outcome"] == "cancelled"
    assert (report["result"]["signal"], report["rung"]) == ("SIGKILL", "killed")
    assert "asked" in entry.log()
    # Told as it is taken, and not with the next one.
    assert entry.rungs["interrupted"] - asked < 2
    # Counted from the request: what the runner says of itself may come late, but never early.
    assert entry.rungs["killed"] - asked >= 3.0


async def test_a_program_that_obeys_is_not_killed(counterpart: Counterpart, runner: Any) -> None:
    """SIGINT is enough for a program that listens, and what it says on its way out is kept."""
    await runner()
    script = "trap 'echo bye; exit 5' INT; echo up; while :; do sleep 0.05; done"
    entry = await counterpart.offer(script=script)
    await counterpart.until(lambda: "up" in entry.log())
    await counterpart.cancel(entry, grace=10)
    report = await ended(counterpart, entry, 8)
    assert (report["outcome"], report["result"]["exit_code"]) == ("cancelled", 5)
    # The end may overtake the sync that tells how far the cancel has come.
    assert report["rung"] == "interrupted"
    assert entry.log().endswith("bye\n")
    assert "killed" not in entry.rungs


async def test_a_timeout_is_the_runners_own_affair(counterpart: Counterpart, runner: Any) -> None:
    """No order of the server is needed to end a command whose time is up."""
    await runner()
    report = await ended(counterpart, await counterpart.offer(argv=["sleep", "30"], args=None, timeout=0.5))
    assert (report["outcome"], report["reason"]) == ("failed", "timed out after 0.5 s")


async def test_artifacts_are_found_and_bounded(counterpart: Counterpart, runner: Any) -> None:
    """Globs find files at any depth; what is too large or leads out of the folder is left out."""
    await runner(artifacts=ArtifactLimits(count=3, file_bytes=100, total_bytes=200))
    script = (
        "mkdir -p out/deep; echo one > out/one.txt; echo two > out/deep/two.txt\n"
        "ln -s /etc/passwd out/link.txt; head -c 101 /dev/zero > out/large.txt"
    )
    entry = await counterpart.offer(script=script, artifacts=["out/**/*.txt", "/etc/hosts", "../*"])
    report = await ended(counterpart, entry)
    assert entry.artifacts == {"out/one.txt": b"one\n", "out/deep/two.txt": b"two\n"}
    assert sorted(report["result"]["artifacts"]) == ["out/deep/two.txt", "out/one.txt"]
    assert entry.log("system") == "artifact out/large.txt is left out: 101 bytes, 100 are allowed\n"


async def test_slots_are_filled_and_never_exceeded(
    counterpart: Counterpart, runner: Any, tmp_path: Path
) -> None:
    """As many commands run at once as there are slots, and the next begins when one has ended."""
    running = tmp_path / "running"
    running.mkdir()
    script = f"touch {running}/$$; sleep 0.3; ls {running} | wc -l; sleep 0.1; rm {running}/$$"
    entries = [await counterpart.offer(script=script) for _ in range(5)]
    await runner(slots=2)
    for entry in entries:
        await ended(counterpart, entry)
    # Each command said how many ran beside it.
    most = max(int(entry.log()) for entry in entries)
    assert most == 2


async def test_a_free_slot_is_told_while_two_processes_of_the_service_hold_syncs(
    counterpart: Counterpart, runner: Any
) -> None:
    """Neither hears of the newer one, so nothing has them answer before their time is over."""
    counterpart.lets_go, counterpart.intervals["sync_wait"] = False, 60
    await runner(slots=1)
    entry = await counterpart.offer(argv=["sh", "-c", "sleep 0.5"])
    await counterpart.until(lambda: entry.report is not None)
    told = len(counterpart.syncs)
    await counterpart.until(lambda: any(sync["free"] == 1 for sync in counterpart.syncs[told:]), timeout=10)


async def test_output_past_the_servers_limit_is_dropped(counterpart: Counterpart, runner: Any) -> None:
    """A server that cuts a log gets no more of it, and the end is accepted."""
    counterpart.log_limit = 1000
    await runner()
    entry = await counterpart.offer(script="seq 1 100000")
    report = await ended(counterpart, entry)
    assert len(entry.logs["stdout"]) == 1000
    assert report["outcome"] == "completed"


async def test_what_the_server_does_not_list_is_stopped_and_not_reported(
    counterpart: Counterpart, runner: Any, probe: Probe
) -> None:
    """An assignment that was taken away ends without a word: somebody else has it now."""
    await runner()
    entry = await counterpart.offer(script="echo up; sleep 100")
    await counterpart.until(lambda: "up" in entry.log())
    entry.wanted = False
    await counterpart.change()
    await probe.wait_for("assignment.ended", lambda fields: fields["outcome"] == "lost")
    assert entry.reports == 0
    again = await counterpart.offer(script="echo fresh")
    await ended(counterpart, again)


async def test_what_was_taken_away_is_listed_no_more(
    counterpart: Counterpart, runner: Any, gate: Gate
) -> None:
    """However long its program takes to end: the server would refuse it at once, again and again."""
    counterpart.intervals["cancel_grace"] = 60
    await runner()
    entry = await counterpart.offer(script=f"trap '' INT; echo up; {gate}")
    await counterpart.until(lambda: "up" in entry.log())
    entry.wanted = False
    await counterpart.change()
    await counterpart.until(lambda: not counterpart.syncs[-1]["held"])
    assert counterpart.syncs[-1]["free"] == 3
    gate.open()
    await counterpart.until(lambda: counterpart.syncs[-1]["free"] == 4)


async def test_the_same_name_is_the_same_runner_after_a_restart(
    counterpart: Counterpart, runner: Any, tmp_path: Path
) -> None:
    """The second start needs no registration token: the runner's own is kept, for its user alone."""
    first = await runner()
    await first.stop()
    assert counterpart.left
    token = tmp_path / "runner" / "token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    await runner(token=None)
    assert counterpart.term == 2
    assert token.read_text() == "hfr_2"


@needs_full_disk
async def test_a_token_that_could_not_be_kept_is_not_asked_for(
    counterpart: Counterpart, runner: Any, tmp_path: Path
) -> None:
    """On a full disk a start fails by a sentence, and the runner's old token stays good."""
    first = await runner()
    await first.stop()
    draft = tmp_path / "runner" / "token.new"
    draft.symlink_to(FULL)
    with pytest.raises(FolderUnwritable, match="No space left on device; make room"):
        await runner(token=None)
    assert counterpart.term == 1
    draft.unlink()
    await runner(token=None)
    assert counterpart.term == 2


async def test_two_processes_are_not_one_runner(runner: Any) -> None:
    """A second start in the same folder is refused by a sentence."""
    await runner()
    with pytest.raises(RunnerBusy, match="another process is runner 'build-7' already"):
        await runner()


async def test_a_superseded_runner_stops_its_work_and_says_so(
    counterpart: Counterpart, runner: Any, probe: Probe
) -> None:
    """Another registration under its name takes everything away."""
    agent = await runner()
    entry = await counterpart.offer(script="echo up; sleep 100")
    await counterpart.until(lambda: "up" in entry.log())
    counterpart.term += 1
    await counterpart.change()
    agent.sync._news.set()
    with pytest.raises(ServerRefused, match="superseded"):
        await asyncio.wait_for(agent.ended(), 10)
    await probe.wait_for("assignment.ended", lambda fields: fields["outcome"] == "lost")


async def test_a_stop_lets_work_finish(counterpart: Counterpart, runner: Any, gate: Gate) -> None:
    """While it drains the server is told so, nothing new begins, and what ran is completed."""
    agent = await runner()
    entry = await counterpart.offer(script=f"echo up; {gate}; echo done")
    await counterpart.until(lambda: "up" in entry.log())
    stopping = asyncio.create_task(agent.stop(20))
    await counterpart.until(lambda: counterpart.syncs[-1]["draining"])
    late = await counterpart.offer(script="echo late")
    gate.open()
    assert await stopping is True
    assert entry.report is not None
    assert entry.report["outcome"] == "completed"
    assert late.state == "offered"
    assert counterpart.left


async def test_what_does_not_finish_within_the_grace_is_handed_back(
    counterpart: Counterpart, runner: Any
) -> None:
    """It is released, which costs the job nothing."""
    counterpart.intervals["cancel_grace"] = 0.5
    agent = await runner()
    entry = await counterpart.offer(script="echo up; sleep 100")
    await counterpart.until(lambda: "up" in entry.log())
    assert await agent.stop(0.1) is False
    assert entry.report is not None
    assert entry.report["outcome"] == "released"


async def test_a_drain_by_the_server_begins_nothing_new(
    counterpart: Counterpart, runner: Any, probe: Probe
) -> None:
    """What runs goes on, and the runner stays until somebody stops it."""
    counterpart.draining = True
    agent = await runner()
    await probe.wait_for("runner.drained")
    assert agent.ready()


async def test_once_runs_one_assignment_and_ends(counterpart: Counterpart, runner: Any) -> None:
    """Of two offers one is taken."""
    entries = [await counterpart.offer(script="true") for _ in range(2)]
    agent = await runner(once=True)
    await asyncio.wait_for(agent.ended(), 10)
    await agent.stop()
    assert [entry.report is None for entry in entries] == [False, True]


async def test_idle_exit_ends_a_runner_without_work(counterpart: Counterpart, runner: Any) -> None:
    """The time counts from the last end, not from the start."""
    agent = await runner(idle_exit=2.0)
    entry = await counterpart.offer(script="sleep 2.5")
    await counterpart.until(lambda: entry.state != "offered")
    await asyncio.wait_for(agent.ended(), 10)
    assert entry.report is not None


async def test_a_broken_assignment_does_not_break_the_runner(
    counterpart: Counterpart, runner: Any, tmp_path: Path
) -> None:
    """A folder that cannot be made fails one assignment by its reason; the next one runs."""
    await runner()
    (tmp_path / "runner" / "assignments").write_text("in the way")
    report = await ended(counterpart, await counterpart.offer(script="true"))
    assert report["reason"].startswith(("FileExistsError", "NotADirectoryError"))
    (tmp_path / "runner" / "assignments").unlink()
    assert (await ended(counterpart, await counterpart.offer(script="true")))["outcome"] == "completed"


async def test_an_end_whose_log_has_arrived_is_written_to_disk_once(
    counterpart: Counterpart, runner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each writing waits for the disk."""
    kept: list[Fence] = []
    keep = StateFolder.keep_report

    def counted(state: StateFolder, fence: Fence, report: Report) -> None:
        kept.append(fence)
        keep(state, fence, report)

    monkeypatch.setattr(StateFolder, "keep_report", counted)
    await runner()
    await ended(counterpart, await counterpart.offer(script="true"))
    assert kept == [Fence(1, 1)]


@needs_full_disk
async def test_an_end_that_the_disk_does_not_take_is_told(
    counterpart: Counterpart, runner: Any, probe: Probe, tmp_path: Path
) -> None:
    """It was done once; forgotten here, it would be done again."""
    await runner()
    (tmp_path / "runner" / "reports" / "1-1.json.new").symlink_to(FULL)
    assert (await ended(counterpart, await counterpart.offer(script="true")))["outcome"] == "completed"
    await probe.wait_for("report.unkept", lambda fields: fields["error"].errno == errno.ENOSPC)


@needs_full_disk
async def test_a_runner_that_has_no_room_for_a_job_rests_with_it(
    counterpart: Counterpart,
    runner: Any,
    probe: Probe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full disk uses up neither the attempts of a whole queue nor its time; then the runner goes on."""
    monkeypatch.setattr("holdfast.runners.agent.execution.REST", 3.0)
    await runner()
    folder = tmp_path / "runner" / "assignments" / "1-1"
    folder.mkdir(parents=True)
    (folder / "script").symlink_to(FULL)
    entry = await counterpart.offer(script="true")
    await probe.wait_for("runner.rests", lambda fields: fields["error"].errno == errno.ENOSPC)
    report = await ended(counterpart, entry)
    assert (report["outcome"], report["delay"]) == ("released", 3)
    assert "No space left" in report["reason"]
    await counterpart.until(lambda: any(not (one["free"] or one["held"]) for one in counterpart.syncs))
    following = await counterpart.offer(script="true")
    assert (await ended(counterpart, following))["outcome"] == "completed"


async def test_nothing_of_an_assignment_stays_behind(
    counterpart: Counterpart, runner: Any, tmp_path: Path
) -> None:
    """Folder, script and buffered logs are gone with it."""
    await runner()
    await ended(counterpart, await counterpart.offer(script="echo x > file; mkdir -p a/b"))
    await counterpart.until(lambda: not os.listdir(tmp_path / "runner" / "assignments"))
    await counterpart.until(lambda: counterpart.syncs[-1]["free"] == 4)


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root needs setpriv for it")
async def test_what_a_program_has_made_read_only_is_deleted(tmp_path: Path) -> None:
    """As the module cache of Go is; root has to do without its rights over all files for that."""
    folder = tmp_path / "1-1"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").touch()
    (folder / "a" / "out").symlink_to(outside := tmp_path / "outside")
    outside.mkdir(mode=0o500)
    for place in (folder / "a" / "b", folder / "a"):
        place.chmod(0o500)
    code = "import sys, pathlib\nfrom holdfast.runners.agent.disposal import discard\n"
    code += "discard(pathlib.Path(sys.argv[1]))"
    plain = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    process = await asyncio.create_subprocess_exec(*plain, sys.executable, "-c", code, str(folder))
    assert await process.wait() == 0
    assert not folder.exists()
    assert stat.S_IMODE(outside.stat().st_mode) == 0o500


async def test_many_short_commands_go_through_few_slots(counterpart: Counterpart, runner: Any) -> None:
    """News that come faster than answers starve nobody, and ends are told on the way."""
    counterpart.intervals["sync_wait"] = 2
    entries = [await counterpart.offer(argv=["true"]) for _ in range(60)]
    await runner(slots=8)
    for entry in entries:
        assert (await ended(counterpart, entry, 40))["outcome"] == "completed"
