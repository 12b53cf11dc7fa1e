"""Transport to a node over SSH; see `controller.nodes.transport.Transport`."""

import secrets
import shlex
from contextlib import suppress
from pathlib import Path

from paramiko import Channel

from controller.nodes.transport import OnProgress, Remote, ignore_progress
from controller.ssh.files import RemoteFiles
from controller.ssh.node_lease import NodeLease
from controller.ssh.node_lease_daemon import WORK
from controller.ssh.program import RemoteProgram, open_command
from inventory.errors import MillraceError

AGENT = "MILLRACE_AGENT"
"""Environment variable that identifies the processes of one agent on its node."""


class SshTransport:
    """Transport to the folder of one attempt on a node."""

    def __init__(self, lease: NodeLease, files: RemoteFiles, name: str, staging: Path) -> None:
        """Prepare the transport; the folder is created with the first program or file.

        Args:
            lease: lease of the node.
            files: files of the node.
            name: name of the folder, below the campaign's.
            staging: folder on this host for fetched files.
        """
        self.folder = f"{lease.folder}/{name}"
        self._lease, self._files, self._name, self._staging = lease, files, name, staging

    async def start(self, module: str) -> Remote:
        """See `Transport.start`; standard error goes to `stderr.log`."""
        await self._lease.open()
        host, mark = self._lease.connection.host, secrets.token_hex(8)
        environment = [f"{WORK}={host.work}", f"{AGENT}={mark}"]
        python = [f"{host.home}/venv/bin/python", "-P", "-m", module]
        # The shell waits and turns a signal into an exit status, because paramiko ignores sshd's signal message.
        script = (
            f"umask 077; mkdir -p {shlex.quote(self.folder)} && cd {shlex.quote(self.folder)} && "
            f"{shlex.join(['env', *environment, *python])} 2>> stderr.log; exit $?"
        )
        channel = await open_command(self._lease.connection, shlex.join(["exec", "sh", "-c", script]))
        return _Agent(channel, self._lease, f"{AGENT}={mark}")

    async def put(self, source: Path, target: str, on_progress: OnProgress = ignore_progress) -> None:
        """See `Transport.put`."""
        await self._files.put(source, f"{self._name}/{target}", on_progress)

    async def replicate(self, source: str, target: Path) -> None:
        """See `Transport.replicate`."""
        await self._files.replicate(f"{self._name}/{source}", target)

    async def fetch(self, source: str, pattern: str) -> Path:
        """See `Transport.fetch`; returns a folder on this host with copies."""
        target = self._staging / source
        await self._files.fetch(f"{self._name}/{source}", pattern, target)
        return target

    async def remove(self) -> None:
        """See `Transport.remove`; if it fails, the folder is removed with the campaign's."""
        if self._lease.is_open:
            with suppress(MillraceError):
                await self._lease.request("remove", folder=self._name)


class _Agent(RemoteProgram):
    """An agent; killing it also kills all processes that it has started."""

    def __init__(self, channel: Channel, lease: NodeLease, mark: str) -> None:
        super().__init__(channel)
        self._lease, self._mark, self._killed = lease, mark, False

    def kill(self) -> None:
        # The agent sees the end of its input. If it ignores that, the lease daemon ends it and its children, which it
        # finds by their mark; an unreachable daemon does so once it is reconnected or gives up the lease.
        self._killed = not self.has_ended
        super().kill()

    async def wait(self) -> int:
        status = await super().wait()
        if self._killed and self._lease.is_open:
            self._killed = False
            with suppress(MillraceError):
                await self._lease.request("end", mark=self._mark)
        return status
