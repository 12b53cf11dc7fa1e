"""Process that restores CPU settings when the process that changed them has died, also by SIGKILL.

It runs in its own session and holds the host's lock and the read end of a pipe. The other end closes when its parent
ends for any reason. Then it restores the settings from the journal, if there still is one.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from agents.cpu.journal import Lock, read_journal, remove_journal
from agents.cpu.restore import restore
from agents.host_files import HostFiles
from inventory.errors import UnfitError

PROGRAM = (sys.executable, "-P", "-m", "agents.cpu.guardian")
READY = b"ready\n"
PATIENCE_S = 10.0
"""Timeout for a guardian to start, and to end when it is dismissed."""


class Guardian:
    """Guardian of this process, watching once the constructor returns.

    Args:
        root: the host's root.
        lock: the host's lock, which the guardian holds until it ends.
        program: command that runs `watch`; the root is appended.

    Raises:
        UnfitError: the guardian does not start.
    """

    def __init__(self, root: Path, lock: Lock, program: tuple[str, ...] = PROGRAM) -> None:
        # Inherit nothing that marks this process as part of the campaign, so that no clean-up kills it.
        packages = str(Path(__file__).parents[2])
        try:
            self._process = subprocess.Popen(
                [*program, str(root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={"PYTHONPATH": packages},
                cwd="/",
                start_new_session=True,
                pass_fds=(lock.descriptor,),
            )
        except OSError as fault:
            raise UnfitError(f"{program[0]}: {fault.strerror}: CPU settings are left unchanged") from None
        said = self._process.stdout
        ready = said.readline() if said else b""
        if said:
            said.close()
        if ready != READY:
            self._process.kill()
            self.dismiss()
            raise UnfitError("the guardian of CPU settings does not start; they are left unchanged")

    @property
    def is_alive(self) -> bool:
        """Whether the guardian is running."""
        return self._process.poll() is None

    def dismiss(self) -> None:
        """Close the pipe; the guardian restores what is still in the journal and ends."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def watch(host: HostFiles) -> int:
    """Wait for the end of standard input, then restore; return the exit status: 1 when a setting still differs.

    The journal is kept until everything is restored, so that a later attempt is possible.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A signal to the whole session or service also ends the parent, and then the settings must be restored.
        signal.signal(number, signal.SIG_IGN)
    os.write(1, READY)
    os.close(1)
    while os.read(0, 1):
        pass
    try:
        journal = read_journal(host.root)
    except UnfitError:
        return 1
    if journal is None:
        return 0
    if not restore(journal.before, host).ok:
        return 1
    remove_journal(host.root)
    return 0


if __name__ == "__main__":
    sys.exit(watch(HostFiles(Path(sys.argv[1]))))
