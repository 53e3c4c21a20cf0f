"""A program runs under a keeper: streamed at once, measured, and ended with all that it started."""

import asyncio
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import ProgramRefused
from holdfast.runners.agent import process
from holdfast.runners.agent.command import report_of
from holdfast.runners.agent.process import Command, Program, ProgramEnd


class Heard:
    """What a program said and when, so that it can be waited for."""

    def __init__(self) -> None:
        self.arrivals: list[tuple[float, bytes]] = []
        self.streams = {"stdout": b"", "stderr": b""}
        self._news = asyncio.Event()

    def __call__(self, stream: str, data: bytes) -> None:
        self.streams[stream] += data
        self.arrivals.append((time.time(), data))
        self._news.set()

    async def until(self, text: bytes, stream: str = "stdout") -> None:
        """Wait until the text was said."""
        async with asyncio.timeout(10):
            while text not in self.streams[stream]:
                await self._news.wait()
                self._news.clear()


@pytest.fixture
def heard() -> Heard:
    """Hears the output of the test's program."""
    return Heard()


def python(code: str, folder: Path, **env: str) -> Command:
    """A command that runs a piece of Python."""
    return Command(argv=[sys.executable, "-u", "-c", code], cwd=folder, env={"PATH": os.defpath, **env})


def shell(script: str, folder: Path) -> Command:
    """A command that runs a piece of shell."""
    return Command(argv=["sh", "-c", script], cwd=folder, env={"PATH": os.defpath})


async def run(command: Command, heard: Heard) -> ProgramEnd:
    """Run a command to its end."""
    async with asyncio.timeout(20):
        return await (await Program.start(command, heard)).wait()


def parent(pid: int) -> int:
    """The process that started another one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def test_a_program_gets_its_words_folder_environment_and_input(tmp_path: Path, heard: Heard) -> None:
    """Nothing of the runner's own environment or folder shines through."""
    code = "import os, sys; print(sys.stdin.read(), os.getcwd(), sorted(os.environ)[:2], file=sys.stderr)"
    command = Command(
        argv=[sys.executable, "-I", "-c", code], cwd=tmp_path, env={"A": "1", "B": "2"}, stdin=b"in"
    )
    end = await run(command, heard)
    assert end.code == 0
    assert heard.streams["stderr"].decode() == f"in {tmp_path} ['A', 'B']\n"


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -SEGV $$", -11)])
async def test_the_end_is_told_as_it_was(script: str, code: int, tmp_path: Path, heard: Heard) -> None:
    """An exit code and a deadly signal are told apart."""
    end = await run(shell(script, tmp_path), heard)
    assert end.code == code
    assert end.signal_name == ("SIGSEGV" if code < 0 else None)


async def test_output_is_heard_while_the_program_goes_on(tmp_path: Path) -> None:
    """A line is there within 200 ms although the program writes nothing more and does not end."""
    delays: list[float] = []
    # A full machine may hold up one or two of them.
    while len(delays) < 5 and min(delays, default=1.0) >= 0.2:
        delays.append(await delay_of_a_line(tmp_path))
    assert min(delays) < 0.2


async def delay_of_a_line(folder: Path) -> float:
    """How long the only line of a program that goes on takes to be heard."""
    heard = Heard()
    code = "import sys, time; print(time.time()); sys.stdin.read(); time.sleep(60)"
    program = await Program.start(python(code, folder), heard)
    started = time.monotonic()
    await heard.until(b"\n")
    assert time.monotonic() - started < 5
    program.signal(signal.SIGKILL)
    await program.wait()
    # By when it arrived, not by when this test came to look.
    return heard.arrivals[0][0] - float(heard.streams["stdout"])


async def test_all_output_is_heard_before_the_end(tmp_path: Path, heard: Heard) -> None:
    """Ten megabytes written in one go and then an end at once: every byte arrives, in order."""
    code = "import os; os.write(2, b'go'); [os.write(1, bytes([65 + n % 26]) * 65536) for n in range(160)]"
    await run(python(code, tmp_path), heard)
    assert heard.streams["stderr"] == b"go"
    assert heard.streams["stdout"] == b"".join(bytes([65 + n % 26]) * 65536 for n in range(160))


async def test_what_was_used_is_measured_with_the_children(tmp_path: Path, heard: Heard) -> None:
    """Processor time and memory of a child's child are counted."""
    work = "data = bytearray(60_000_000); end = __import__('time').process_time() + 0.3\n"
    work += "while __import__('time').process_time() < end: pass"
    end = await run(
        python(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])", tmp_path), heard
    )
    assert end.usage.user_seconds + end.usage.system_seconds >= 0.3
    assert end.usage.max_rss_bytes > 60_000_000
    assert end.usage.wall_seconds >= 0.3


async def test_a_program_that_is_not_there_is_refused_by_name(tmp_path: Path, heard: Heard) -> None:
    """The error names what cannot be run and why."""
    command = Command(argv=["no-such-program"], cwd=tmp_path, env={"PATH": "/nowhere"})
    with pytest.raises(ProgramRefused, match="'no-such-program' cannot be started: No such file"):
        await Program.start(command, heard)


async def test_a_folder_that_is_not_there_is_refused_by_name(tmp_path: Path, heard: Heard) -> None:
    """It is the folder that is named, not the program."""
    with pytest.raises(ProgramRefused, match="gone' cannot be started: No such file"):
        await Program.start(shell("true", tmp_path / "gone"), heard)


async def test_a_signal_reaches_the_whole_group(tmp_path: Path, heard: Heard) -> None:
    """A shell's child is interrupted with its shell."""
    program = await Program.start(shell("sleep 100 & echo $!; wait; echo late", tmp_path), heard)
    await heard.until(b"\n")
    program.signal(signal.SIGINT)
    program.signal(signal.SIGTERM)
    end = await program.wait()
    assert end.code != 0
    assert not is_alive(int(heard.streams["stdout"].split()[0]))


async def test_orders_that_come_in_one_piece_are_all_obeyed(tmp_path: Path, heard: Heard) -> None:
    """The last of them may be the last that comes at all, and the program one that only it ends."""
    program = await Program.start(shell("trap '' INT; echo up; sleep 100", tmp_path), heard)
    await heard.until(b"up")
    keeper = parent(program.pid)
    os.kill(keeper, signal.SIGSTOP)
    program.signal(signal.SIGINT)
    program.signal(signal.SIGKILL)
    os.kill(keeper, signal.SIGCONT)
    async with asyncio.timeout(10):
        assert (await program.wait()).signal_name == "SIGKILL"


async def test_a_program_ends_when_its_runner_stands_still(tmp_path: Path, heard: Heard) -> None:
    """Its keeper hears nothing any more; that children of the program end is no word of the runner."""
    code = "for _ in $(seq 1000); do (sleep 0.05 &) ; sleep 0.05; done"
    # Long enough for a full machine to start it and to hear of that.
    program = await Program.start(
        shell(f"echo $$; {code}", tmp_path), heard, until=lambda: time.monotonic() + 2.0
    )
    await heard.until(b"\n")
    pid = int(heard.streams["stdout"])
    async with asyncio.timeout(20):
        # The loop of this process stands still until the program is gone.
        began = time.monotonic()
        while is_alive(pid):
            assert time.monotonic() - began < 20
            time.sleep(0.02)  # noqa: ASYNC251 - that is what is tried
        end = await program.wait()
    assert (end.code, end.abandoned) == (None, True)
    reason = "its runner stood still or was cut off for too long, and another one might have begun it"
    assert report_of(end, "", []).reason == reason


async def test_a_program_goes_on_while_its_runner_is_there(tmp_path: Path, heard: Heard) -> None:
    """However long it runs, compared with what its keeper is granted at a time."""
    # A full machine may hold this process up for a second, and its keeper would be right to end the program.
    program = await Program.start(
        shell("sleep 4; echo done", tmp_path), heard, until=lambda: time.monotonic() + 2.0
    )
    end = await program.wait()
    assert (end.code, heard.streams["stdout"]) == (0, b"done\n")


async def test_a_program_ends_in_time_where_its_runner_lives_on_without_its_server(
    tmp_path: Path, heard: Heard
) -> None:
    """That the runner is there puts nothing off; what is deaf to SIGINT is killed without its help."""
    until = time.monotonic() + 0.5
    program = await Program.start(shell("trap '' INT; sleep 100", tmp_path), heard, until=lambda: until)
    async with asyncio.timeout(20):
        end = await program.wait()
    assert (end.code, end.abandoned, time.monotonic() >= until) == (None, True, True)


async def test_the_end_of_a_program_is_heard_by_a_runner_that_spoke_after_it(
    tmp_path: Path, heard: Heard
) -> None:
    """A word to a keeper that has gone would be answered by an error, and the end before it lost."""
    program = await Program.start(shell("true", tmp_path), heard)
    # The loop stands still until the program is gone, and its keeper has had time to go too.
    over = time.monotonic() + 0.5
    while is_alive(program.pid) or time.monotonic() < over:
        time.sleep(0.01)  # noqa: ASYNC251 - that is what is tried
    program.signal(signal.SIGINT)
    assert (await program.wait()).code == 0


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_signal_to_a_program_that_has_ended_is_passed_over(loop: str, tmp_path: Path, heard: Heard) -> None:
    """A cancel may come while its keeper takes its time to go; uvloop writes to no closed line."""

    async def scene() -> int | None:
        program = await Program.start(shell("true", tmp_path), heard)
        end = await program.wait()
        program.signal(signal.SIGINT)
        return end.code

    with asyncio.Runner(loop_factory=pytest.importorskip(loop).new_event_loop) as runner:
        assert runner.run(scene()) == 0


async def test_a_runner_with_many_open_files_begins_programs(tmp_path: Path, heard: Heard) -> None:
    """The line to a keeper may have a number beyond the 1,024 that `select` can wait for."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    many: list[int] = []
    try:
        while not many or many[-1] < 1100:
            many.append(os.open(os.devnull, os.O_RDONLY))
        end = await run(shell("echo hello; exit 3", tmp_path), heard)
    finally:
        for number in many:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (end.code, heard.streams["stdout"]) == (3, b"hello\n")


async def test_a_program_whose_keeper_was_killed_leaves_nothing_behind(
    tmp_path: Path, heard: Heard, eventually: Callable[..., object]
) -> None:
    """The program dies with its keeper; what it had started is ended by the runner."""
    program = await Program.start(shell("sleep 100 & echo $!; wait", tmp_path), heard)
    await heard.until(b"\n")
    os.kill(parent(program.pid), signal.SIGKILL)
    async with asyncio.timeout(20):
        assert (await program.wait()).code is None

    async def gone() -> bool:
        return not is_alive(int(heard.streams["stdout"]))

    await eventually(gone)  # type: ignore[misc]


DAEMON = (
    "import os, time\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        os.write(1, b'%d\\n' % os.getpid())\n"
    "        open('up', 'w').close()\n"
    "        time.sleep(100)\n"
    "    os._exit(0)\n"
    "{rest}"
)


async def test_a_daemon_does_not_outlive_its_program(tmp_path: Path, heard: Heard) -> None:
    """What forked twice into a session of its own is killed when the program has ended, and is counted."""
    code = DAEMON.format(rest="os.wait()\nwhile not os.path.exists('up'): time.sleep(0.01)")
    end = await run(python(code, tmp_path), heard)
    assert end.code == 0
    assert end.orphans == 1
    assert not is_alive(int(heard.streams["stdout"]))


async def test_sigkill_reaches_what_left_the_group(tmp_path: Path, heard: Heard) -> None:
    """The last rung leaves nothing alive, wherever it hides."""
    program = await Program.start(python(DAEMON.format(rest="time.sleep(100)"), tmp_path), heard)
    await heard.until(b"\n")
    program.signal(signal.SIGKILL)
    end = await program.wait()
    assert end.signal_name == "SIGKILL"
    assert not is_alive(int(heard.streams["stdout"]))


async def test_a_cancelled_wait_leaves_nothing_behind(tmp_path: Path, heard: Heard) -> None:
    """Who stops waiting for a program ends it."""
    program = await Program.start(shell("trap '' INT TERM; echo up; sleep 100", tmp_path), heard)
    await heard.until(b"up")
    waiting = asyncio.create_task(program.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert not is_alive(program.pid)


RUNNER = """
import asyncio, os, sys
from pathlib import Path
from holdfast.runners.agent.process import Command, Program
async def main():
    code = {code!r}
    command = Command(argv=[sys.executable, "-u", "-c", code], cwd=Path.cwd(), env={{}})
    await (await Program.start(command, lambda _, data: os.write(1, data))).wait()
asyncio.run(main())
"""


async def test_a_killed_runner_takes_its_programs_along(
    tmp_path: Path, eventually: Callable[..., object]
) -> None:
    """Nobody works on for a runner that is gone, daemons included: another runner may hold the job soon."""
    # Each number with its newline at once: print() writes them one after the other, and two write here.
    code = DAEMON.format(rest="os.write(1, b'%d\\n' % os.getpid()); time.sleep(100)")
    runner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RUNNER.format(code=code), stdout=asyncio.subprocess.PIPE, cwd=tmp_path
    )
    assert runner.stdout is not None
    pids = [int(await runner.stdout.readline()) for _ in range(2)]
    assert all(map(is_alive, pids))
    runner.kill()
    await runner.wait()

    async def gone() -> bool:
        return not any(map(is_alive, pids))

    await eventually(gone)  # type: ignore[misc]


def test_a_program_may_open_its_streams_anew(heard: Heard, tmp_path: Path) -> None:
    """`echo >/dev/stderr` works also on the loop that the runner program runs on."""
    with asyncio.Runner(loop_factory=pytest.importorskip("uvloop").new_event_loop) as runner:
        end = runner.run(run(shell("echo a >/dev/stdout; echo b >/dev/stderr", tmp_path), heard))
    assert (end.code, heard.streams) == (0, {"stdout": b"a\n", "stderr": b"b\n"})


# Counts what leads to where a stream leads, beside the stream.
COPIES = """
import os
def place(n):
    try:
        return os.fstat(n).st_dev, os.fstat(n).st_ino
    except OSError:
        return None
streams = [place(n) for n in range(3)]
print(sum(place(int(n)) in streams for n in os.listdir("/dev/fd") if int(n) > 2))
"""


def test_the_end_of_the_streams_is_heard_on_every_loop(
    heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvloop leaves copies of them open in the keeper: nobody waits for those, no program gets them."""
    monkeypatch.setattr(process, "LONGEST_ECHO", 60.0)
    with asyncio.Runner(loop_factory=pytest.importorskip("uvloop").new_event_loop) as runner:
        end = runner.run(run(python(COPIES, tmp_path), heard))
    assert (end.code, heard.streams["stdout"]) == (0, b"0\n")
