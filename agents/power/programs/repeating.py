"""What these programs share: a line at regular times, and what went wrong in place of it."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

TIMEOUT_S = 10.0


def parser(what: str, example: str, domain: str) -> argparse.ArgumentParser:
    """A command line with the options that all have.

    Args:
        what: the program does.
        example: how it is called.
        domain: what its readings are called, unless told otherwise.
    """
    made = argparse.ArgumentParser(
        description=what, epilog=f"Example: {example}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--domain", default=domain, help=f"what the readings are called (default: {domain})")
    made.add_argument("--period", type=float, default=1.0, metavar="S", help="seconds between readings (default: 1)")
    return made


def repeat(options: argparse.Namespace, watts: Callable[[], float]) -> None:
    """Print readings until nobody reads them any more.

    Args:
        options: of `parser`.
        watts: asks the meter. An OSError or ValueError of it is printed as it is: it becomes the reason why the
            reading is missing.
    """
    due = time.monotonic()
    while True:
        before = time.time()
        try:
            power = watts()
            # The meter spoke some time in between.
            reading = {"t": (before + time.time()) / 2, "watts": power, "domain": options.domain}
            line = json.dumps(reading)
        except (OSError, ValueError) as fault:
            line = str(fault)
        try:
            print(line, flush=True)  # noqa: T201 - that is what it is for
        except BrokenPipeError:
            sys.stderr.close()
            return
        due = max(due + options.period, time.monotonic())
        time.sleep(due - time.monotonic() if due > time.monotonic() else 0)


def output_of(command: Sequence[str]) -> str:
    """What a tool prints.

    Raises:
        OSError: it is not there, fails, or takes too long.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise OSError(f"{command[0]} has not answered for {TIMEOUT_S:.0f} s") from None
    except OSError as fault:
        raise OSError(f"{command[0]} cannot be started: {fault.strerror}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise OSError(
            f"{command[0]} has ended with status {done.returncode}: {said[-1] if said else 'it said nothing'}"
        )
    return done.stdout
