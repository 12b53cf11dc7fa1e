"""Programs for the reader `external`: each polls one kind of meter and prints its readings.

They need only Python and the named tool, and are examples for your own programs. What they share is here: a reading, or
an error, is printed at regular intervals.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

TIMEOUT_S = 10.0


def parser(what: str, example: str, domain: str) -> argparse.ArgumentParser:
    """Return an argument parser with the common options.

    Args:
        what: description of the program.
        example: example of a call.
        domain: default name of the domain.
    """
    made = argparse.ArgumentParser(
        description=what, epilog=f"Example: {example}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--domain", default=domain, help=f"name of the domain (default: {domain})")
    made.add_argument("--period", type=float, default=1.0, metavar="S", help="seconds between readings (default: 1)")
    return made


def repeat(options: argparse.Namespace, watts: Callable[[], float]) -> None:
    """Print readings until the output is closed.

    Args:
        options: options of `parser`.
        watts: polls the meter. The message of an OSError or ValueError is printed; it becomes the reason why the
            reading is missing.
    """
    due = time.monotonic()
    while True:
        before = time.time()
        try:
            power = watts()
            # The meter was read at some time in between.
            reading = {"t": (before + time.time()) / 2, "watts": power, "domain": options.domain}
            line = json.dumps(reading)
        except (OSError, ValueError) as fault:
            line = str(fault)
        try:
            print(line, flush=True)  # noqa: T201 - that is what it is for
        except BrokenPipeError:
            # Python writes the rest of its buffers when it ends, and would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
        due = max(due + options.period, time.monotonic())
        time.sleep(due - time.monotonic() if due > time.monotonic() else 0)


def output_of(command: Sequence[str]) -> str:
    """Return the output of a tool.

    Raises:
        OSError: it is not installed, fails, or takes too long.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise OSError(f"{command[0]} has not answered for {TIMEOUT_S:.0f} s") from None
    except OSError as fault:
        raise OSError(f"{command[0]} cannot be started: {fault.strerror}") from None
    if done.returncode:
        output = (done.stderr or done.stdout).strip().splitlines()
        raise OSError(f"{command[0]} has ended with status {done.returncode}: {output[-1] if output else 'no output'}")
    return done.stdout
