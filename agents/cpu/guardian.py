"""A process that puts CPU settings back when the one that changed them has died, also by kill -9.

It is in a session of its own and holds the host's lock and the read end of a pipe. The other end closes when its maker
ends for whatever reason: then it restores from the journal. Where there is no journal any more there is nothing to do.
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
"""How long a guardian may take to start, and to end when it is dismissed."""


class Guardian:
    """A guardian of this process; it watches from when this returns.

    Args:
        root: the host's root.
        lock: the host's lock, which the guardian holds on to until it has done its work.
        program: command that runs `main`, to which the root is added.

    Raises:
        UnfitError: it does not start.
    """

    def __init__(self, root: Path, lock: Lock, program: tuple[str, ...] = PROGRAM) -> None:
        # Nothing of ours is inherited by which somebody who ends all processes of a campaign would find it.
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
            raise UnfitError(f"{program[0]}: {fault.strerror}: CPU settings are left alone") from None
        said = self._process.stdout
        ready = said.readline() if said else b""
        if said:
            said.close()
        if ready != READY:
            self._process.kill()
            self.dismiss()
            raise UnfitError("the guardian of CPU settings does not start; they are left alone")

    @property
    def is_alive(self) -> bool:
        """Whether it still watches."""
        return self._process.poll() is None

    def dismiss(self) -> None:
        """Let it go; it restores what is still in the journal and ends."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def watch(host: HostFiles) -> int:
    """Wait for the end of standard input, then restore; return the exit status: 1 when something differs still.

    The journal stays until everything is as it was, so that a later attempt can be made.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Whoever ends a whole session or service ends our maker with it, and then there is work to do.
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
