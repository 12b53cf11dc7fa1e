"""Starting a relay and waiting until it carries."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

import msgspec

from campaign.emulation.relay import RelayPlan
from inventory.errors import UnfitError
from inventory.lifetime import end_with


def start_relay(plan: RelayPlan, log: Path) -> subprocess.Popen[bytes]:
    """Start a relay, which ends with this process, and return it once all interfaces are there.

    Args:
        plan: what it is to do.
        log: the file to which it adds its complaints and, at its end, its `Account` as one line of JSON.

    Raises:
        UnfitError: it could not make an interface; the message is its own.
    """
    with log.open("ab") as errors:
        begin = errors.tell()
        relay = subprocess.Popen(
            [sys.executable, "-P", "-m", "campaign.emulation.relay"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            preexec_fn=end_with(os.getpid()),
        )
    plans, answers = cast("IO[bytes]", relay.stdin), cast("IO[bytes]", relay.stdout)
    # One that has ended already says why in its log.
    with suppress(BrokenPipeError), plans:
        plans.write(msgspec.json.encode(plan))
    with answers:
        ready = answers.readline() == b"ready\n"
    if not ready:
        relay.wait()
        said = log.read_bytes()[begin:].decode(errors="replace").strip() or f"the relay ended with {relay.returncode}"
        raise UnfitError(said.splitlines()[-1])
    return relay
