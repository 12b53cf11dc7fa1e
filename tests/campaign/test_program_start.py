"""Start of the program `millrace`: loaded modules, interrupts, and standard streams that cannot be written."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from campaign.commands.main import millrace

MILLRACE = (sys.executable, "-P", "-c", "from millrace.__main__ import main; main()")

INSTALLED = Path(sys.executable).with_name("millrace")


def interrupt_at_random(times: int) -> None:
    """Interrupt the installed program at random times after its start."""
    if "--block-signal" not in INSTALLED.read_text():
        pytest.skip("signals interrupt the start of Python: ./run has not installed this, or `env` cannot block them")
    draw = random.Random(12)  # noqa: S311
    for turn in range(times):
        number = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)[turn % 3]
        words = [["list", "schedulers"], ["run", "demo", "--dry-run"]][turn % 2]
        with subprocess.Popen(
            [INSTALLED, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        ) as process:
            pause = draw.random() * (0.15, 1.5)[turn % 2]
            time.sleep(pause)
            process.send_signal(number)
            _, err = process.communicate(timeout=60)
        message = f"{number.name} after {pause:.4f} s of {words}: status {process.returncode}, {err!r}"
        # Before Python starts, the system ends the process.
        assert process.returncode in (0, 130, -number), message
        assert err.strip() == (b"interrupted" if process.returncode == 130 else b""), message


def test_an_interrupt_while_the_program_is_loaded_leaves_one_line_and_status_130() -> None:
    interrupt_at_random(12)


@pytest.mark.soak
def test_two_hundred_interrupts_while_the_program_is_loaded() -> None:
    interrupt_at_random(200)


def test_no_other_module_is_loaded_before_ctrl_c_is_handled() -> None:
    load = "import importlib, pathlib, sys; before = set(sys.modules); import millrace.__main__"
    code = f"{load}; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['millrace', 'millrace.__main__']"


def test_a_failed_write_of_results_is_an_error_with_the_reason() -> None:
    for words in (("--help",), ("list", "schedulers")):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run([*MILLRACE, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 3
        assert done.stderr == "millrace: standard output cannot be written: No space left on device\n"


def test_a_failed_write_of_messages_changes_no_result() -> None:
    with Path("/dev/full").open("w") as full:
        wrong = subprocess.run([*MILLRACE, "lst"], stdout=subprocess.PIPE, stderr=full, check=False)
        right = subprocess.run([*MILLRACE, "list", "agendas"], stdout=subprocess.PIPE, stderr=full, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, b"")
    assert right.returncode == 0
    assert b"demo" in right.stdout


def test_standard_streams_that_are_closed_are_never_mistaken_for_files(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    code = f"""
import sys
from campaign.display.terminal import open_standard_streams
open_standard_streams()
with open({str(kept)!r}, "w") as file:
    print("result"), print("message", file=sys.stderr, flush=True)
    assert file.fileno() > 2
    assert sys.stdin.read() == ""
"""
    words = ("sh", "-c", 'exec "$0" -P -c "$1" <&- >&- 2>&-', sys.executable, code)
    assert subprocess.run(words, check=False).returncode == 0
    assert kept.read_text() == ""


def test_a_stalled_reader_of_messages_does_not_block_the_program() -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    code = """
import sys, time
from campaign.display.terminal import open_standard_streams
open_standard_streams()
begun = time.monotonic()
for _ in range(3000):
    print("x" * 99, file=sys.stderr)
print(time.monotonic() - begun, flush=True)
print(input(), file=sys.stderr)
"""
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=write
    ) as process:
        os.close(write)
        assert process.stdout is not None
        assert float(process.stdout.readline()) < 10
        with suppress(BlockingIOError):
            while os.read(read, 1 << 20):
                pass
        # Messages written after it reads again are delivered.
        process.communicate(b"read again\n", timeout=60)
    assert process.returncode == 0
    assert os.read(read, 1 << 20) == b"read again\n"
    os.close(read)


HEAVY = {"pyspark", "py4j", "pandas", "pyarrow", "numpy", "scipy", "matplotlib", "jinja2", "rich", "asyncio"}

PROGRAM = """
import json, sys
from campaign.commands.main import run
status = run(json.loads(sys.argv[1]))
print(json.dumps([status, sorted({name.partition(".")[0] for name in sys.modules})]), file=sys.stderr)
"""


@pytest.mark.parametrize("scheduler", ["even", "top-storm"])
def test_place_loads_nothing_heavy(scheduler: str, tmp_path: Path) -> None:
    topology = tmp_path / "t.yml"
    topology.write_text(
        "id: t\ncomponents: [{id: a, kind: spout}, {id: b, kind: bolt, parallelism: 2, inputs: [{from: a}]}]\n"
    )
    command = ["place", "--cluster", "loopback", "--topology", str(topology), "--scheduler", scheduler, "--json"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(command)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["topologies"]["t"]["status"] == "placed"
    status, modules = json.loads(done.stderr.splitlines()[-1])
    assert status == 0
    assert HEAVY & set(modules) == set()


def test_the_list_of_commands_at_80_columns_cuts_no_summary() -> None:
    shown = CliRunner().invoke(millrace, ["--help"], terminal_width=80).output
    commands = shown.partition("Commands:")[2].splitlines()
    assert len(commands) > 10
    assert [line for line in commands if line.endswith("...")] == []
