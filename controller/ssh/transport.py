"""A node that is reached over SSH, as a run sees it: see `controller.nodes.transport.Transport`."""

import secrets
import shlex
from contextlib import suppress
from pathlib import Path

from paramiko import Channel

from controller.nodes.transport import Moved, Remote, untold
from controller.ssh.files import RemoteFiles
from controller.ssh.node_lease import NodeLease
from controller.ssh.node_lease_daemon import WORK
from controller.ssh.program import RemoteProgram, open_command
from inventory.errors import MillraceError

AGENT = "MILLRACE_AGENT"
"""Environment variable by which the processes of one agent are told from all others on its node."""


class SshTransport:
    """One folder on a node: that of one attempt at a run."""

    def __init__(self, keeping: NodeLease, files: RemoteFiles, name: str, staging: Path) -> None:
        """Describe it; the folder is made with the first program or file.

        Args:
            keeping: of the node.
            files: the node's.
            name: of the folder, below the campaign's.
            staging: a folder of this host, for what is fetched.
        """
        self.folder = f"{keeping.folder}/{name}"
        self._keeping, self._files, self._name, self._staging = keeping, files, name, staging

    async def start(self, module: str) -> Remote:
        """See `Transport.start`; what it prints before it has a log of its own goes to `stderr.log`."""
        await self._keeping.open()
        host, mark = self._keeping.connection.host, secrets.token_hex(8)
        environment = [f"{WORK}={host.work}", f"{AGENT}={mark}"]
        python = [f"{host.home}/venv/bin/python", "-P", "-m", module]
        # The shell waits, so that it can tell of a signal: paramiko passes over what sshd says of one.
        script = (
            f"umask 077; mkdir -p {shlex.quote(self.folder)} && cd {shlex.quote(self.folder)} && "
            f"{shlex.join(['env', *environment, *python])} 2>> stderr.log; exit $?"
        )
        channel = await open_command(self._keeping.connection, shlex.join(["exec", "sh", "-c", script]))
        return _Agent(channel, self._keeping, f"{AGENT}={mark}")

    async def put(self, source: Path, target: str, moved: Moved = untold) -> None:
        """See `Transport.put`."""
        await self._files.put(source, f"{self._name}/{target}", moved)

    async def keep(self, source: str, target: Path) -> None:
        """See `Transport.keep`."""
        await self._files.keep(f"{self._name}/{source}", target)

    async def fetch(self, source: str, pattern: str) -> Path:
        """See `Transport.fetch`; a folder of this host with copies."""
        target = self._staging / source
        await self._files.fetch(f"{self._name}/{source}", pattern, target)
        return target

    async def remove(self) -> None:
        """See `Transport.remove`; what cannot be removed now is removed with the campaign's folder."""
        if self._keeping.is_open:
            with suppress(MillraceError):
                await self._keeping.ask("remove", folder=self._name)


class _Agent(RemoteProgram):
    """An agent; when it is killed, so is all that it has started."""

    def __init__(self, channel: Channel, keeping: NodeLease, mark: str) -> None:
        super().__init__(channel)
        self._keeping, self._mark, self._killed = keeping, mark, False

    def kill(self) -> None:
        # An agent sees the end of its input. One that takes no notice is ended by the keeper, which finds what belongs
        # to it by its mark; where the keeper cannot be reached, it does so when the connection comes back, or ends.
        self._killed = not self.has_ended
        super().kill()

    async def wait(self) -> int:
        status = await super().wait()
        if self._killed and self._keeping.is_open:
            self._killed = False
            with suppress(MillraceError):
                await self._keeping.ask("end", mark=self._mark)
        return status
