"""Daemon of an emulated cluster: starts it, emulates the effects of nodes' writes to `/sys`, and stops it.

`python -P -m controller.emulation.daemon` reads one line, a `ClusterRequest`, and writes its progress line by line,
then `ready` or an error. The cluster stops at the end of the input, and therefore with the process that started the
daemon, unless it has received the line `keep`; SIGTERM always stops it. While the cluster runs, programs of the same
user send requests over a socket in the cluster's folder: one JSON object per line, one reply each
(`controller.emulation.cluster`).
"""

import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import IO, cast

import msgspec

from controller.emulation.cluster import KEEP, READY, SOCKET, DaemonReply, DaemonRequest
from controller.emulation.description import (
    DAEMON_LOG,
    NODES,
    RELAY_LOG,
    ClusterOrigin,
    ClusterRequest,
    Description,
    RunningNode,
    clear,
    forget_cluster,
    forget_description,
    logs_in,
    nics_of,
    public_part,
    remember,
)
from controller.emulation.network import EmulatedNetwork, NetworkPlan, new_prefix
from controller.emulation.node_init import READY as NODE_READY
from controller.emulation.node_init import NodePlan
from controller.emulation.programs import write_programs
from controller.emulation.sysfs_effects import FolderWatch, RefusedWrite, SysfsEffects
from controller.host.cgroups import ControlGroup, find_hierarchy
from controller.host.disk import state_folder
from controller.host.ownership import CleanupLog, this_owner
from controller.host.process_identity import identify
from inventory.errors import MillraceError, RunError, UnfitError
from inventory.foreign import printable

_CHILDREN = "/proc/{pid}/task/{pid}/children"

_TICK_S = 0.05
_READ_S = 1.0
"""Interval of reading all nodes' files, in addition to inotify, which reports writes immediately."""

_SHELL_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


class EmulatedNode:
    """A node that is starting; `wait` returns once it is reachable."""

    def __init__(self, plan: NodePlan, log: Path) -> None:
        """Start the node; its errors are written to `log`."""
        self.plan = plan
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "controller.emulation.node_init"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._input = cast("IO[bytes]", self._process.stdin)
        self._input.write(msgspec.json.encode(plan) + b"\n")
        self._input.flush()

    @property
    def process(self) -> int:
        """Pid of the parent of the node's init process."""
        return self._process.pid

    def wait(self) -> int:
        """Wait until its SSH server answers; return the pid of its init process on this host.

        Raises:
            UnfitError: the node could not be started; the message is the node's own.
        """
        with cast("IO[bytes]", self._process.stdout) as output:
            line = output.readline().decode(errors="replace").strip()
        if line != NODE_READY:
            self.stop()
            raise UnfitError(f"node {self.plan.name}: {line or 'it ended without a message'}")
        return int(Path(_CHILDREN.format(pid=self._process.pid)).read_text().split()[0])

    def stop(self) -> None:
        """Stop the node with all its processes."""
        self._input.close()
        self._process.wait()

    @property
    def ended(self) -> bool:
        """True if it has ended, for whatever reason."""
        return self._process.poll() is not None


class EmulationDaemon:
    """A cluster, running from `up` until the end of the block."""

    def __init__(self, request: ClusterRequest, report_progress: Callable[[str], None]) -> None:
        """Prepare the cluster; `report_progress` is called with the name of each part that is up."""
        self.request, self._report_progress = request, report_progress
        self.folder = Path(request.folder)
        self._stack = ExitStack()
        self._effects: dict[str, SysfsEffects] = {}
        self._nodes: dict[str, EmulatedNode] = {}
        self._refused: list[RefusedWrite] = []
        self._faults: list[str] = []
        self._watch = FolderWatch()
        self._server = self._stack.enter_context(socket.socket(socket.AF_UNIX))

    def __enter__(self) -> "EmulationDaemon":
        return self

    def __exit__(self, *_: object) -> None:
        forget_description(self.folder)
        self._stack.close()

    def _clean_folder(self, states: Path) -> None:
        clear(self.folder, Path(self.request.key))
        if not any(log.stat().st_size for log in logs_in(self.folder)):
            forget_cluster(self.folder, states)

    def up(self) -> None:
        """Start the cluster.

        Raises:
            MillraceError: this host does not support it, or a step failed; leaving the block cleans up.
        """
        clear(self.folder, Path(self.request.key))
        states = state_folder()
        remember(self.folder, states)
        self._stack.callback(self._clean_folder, states)
        state = self._stack.enter_context(CleanupLog(self.folder))
        machines = self.request.machines
        plan = NetworkPlan(new_prefix(), tuple(machines), self.request.links, nics_of(machines))
        hierarchy = find_hierarchy()
        groups = {name: ControlGroup(hierarchy, f"{plan.prefix}/{name}") for name in plan.nodes}
        self._all_nodes = ControlGroup(hierarchy, plan.prefix)
        for folder in self._all_nodes.folders:
            state.group(folder)
        for group in groups.values():
            group.make()
        network = EmulatedNetwork(plan, state, self.folder / RELAY_LOG)
        shaping = network.up()
        self._report_progress("network")
        keys = {name: self.folder / NODES / name / "host_key" for name in plan.nodes}
        for key in keys.values():
            (key.parent / "root").mkdir(parents=True)
        make_keys(Path(self.request.key), keys)
        addresses = {name: end.address for name, end in network.nodes.items()}
        known = known_hosts(keys, addresses)
        write_programs(self.folder, Path(self.request.key), known, network.controller.path)
        hosts = {**addresses, "controller": network.controller.address}
        sshd = shutil.which("sshd", path=_SHELL_PATH)
        if sshd is None:
            raise UnfitError("there is no 'sshd' on this host (package openssh-server)")
        for name, machine in self.request.machines.items():
            node = NodePlan(
                name=name,
                machine=machine,
                namespace=str(network.nodes[name].path),
                address=addresses[name],
                entrances=[str(path) for path in groups[name].entrances],
                account=str(groups[name].account),
                place=str(keys[name].parent / "root"),
                host_key=str(keys[name]),
                authorized=public(Path(self.request.key)) + "\n",
                known_hosts=known,
                hosts=hosts,
                sshd=sshd,
            )
            self._nodes[name] = EmulatedNode(node, self.folder / DAEMON_LOG)
            self._stack.callback(self._nodes[name].stop)
            state.started(self._nodes[name].process, f"node {name}")
        members = {}
        for name, running in self._nodes.items():
            pid = running.wait()
            members[name] = RunningNode(pid, groups[name].name, self.request.machines[name])
            machine, root = self.request.machines[name], members[name].files
            self._effects[name] = SysfsEffects(name, machine, root, groups[name], self._refused.append)
            self._watch.add(name, self._effects[name].folders)
            self._report_progress(name)
        self._server.bind(str(self.folder / SOCKET))
        self._server.listen()
        me = this_owner(self.folder)
        origin = ClusterOrigin(identify(os.getppid()) or me.process, str(Path(__file__).parents[2]), me.since)
        Description(self.request, origin, plan, shaping, me.process, members).write()

    def serve(self, must_end: Callable[[], bool]) -> None:
        """Apply writes to nodes' files and answer requests until the cluster has to stop."""
        keep_running = False
        last_read = monotonic()
        server = self._server
        with selectors.DefaultSelector() as selector:
            for source in (0, server, self._watch):
                selector.register(source, selectors.EVENT_READ)
            while not must_end():
                ready = {key.fileobj for key, _ in selector.select(_TICK_S)}
                written = self._watch.written() if self._watch in ready else set()
                if monotonic() - last_read >= _READ_S:
                    last_read, written = monotonic(), set(self._effects)
                for name in written:
                    self._react(name)
                for effects in self._effects.values():
                    effects.tick()
                if server in ready:
                    self._answer(server)
                if 0 in ready:
                    received = os.read(0, 4096)
                    keep_running = keep_running or KEEP in received
                    if keep_running:
                        selector.unregister(0)
                    elif not received:
                        return

    def _react(self, name: str) -> None:
        if self._nodes[name].ended:
            return
        try:
            self._effects[name].react()
        except RunError as fault:
            self._faults.append(f"node {name}: {fault}")

    def _answer(self, server: socket.socket) -> None:
        client, _ = server.accept()
        with client, client.makefile("rb") as lines:
            client.settimeout(1.0)
            try:
                request = msgspec.json.decode(lines.readline(), type=DaemonRequest)
                answer = self._answers[request.do](self)
            except MillraceError as fault:
                answer = DaemonReply(error=str(fault))
            except (OSError, msgspec.MsgspecError) as fault:
                answer = DaemonReply(error=f"invalid request: {fault}")
            with suppress(OSError):
                client.sendall(msgspec.json.encode(answer) + b"\n")

    def _limit(self) -> DaemonReply:
        # Other load on this host must not slow nodes down; the quotas limit how much nodes take from other processes.
        self._all_nodes.prefer(True)
        for effects in self._effects.values():
            effects.limit(True)
        return self._status()

    def _lift(self) -> DaemonReply:
        # Nodes that are preferred and without a limit would leave no CPU time to this process and to other clusters.
        self._all_nodes.prefer(False)
        for effects in self._effects.values():
            effects.limit(False)
        return self._status()

    def _status(self) -> DaemonReply:
        for name in self._effects:
            self._react(name)
        return DaemonReply(
            shares={name: effects.share for name, effects in self._effects.items()},
            refused=list(self._refused),
            faults=[*self._faults, *(f"node {name}: has ended" for name, node in self._nodes.items() if node.ended)],
        )

    _answers: Mapping[str, Callable[["EmulationDaemon"], DaemonReply]] = {
        "limit": _limit,
        "lift": _lift,
        "status": _status,
    }


def make_keys(login: Path, nodes: Mapping[str, Path]) -> None:
    """Create a login key and a host key for every node (name -> file); replace existing ones.

    Raises:
        UnfitError: OpenSSH is missing, or a folder is not writable.
    """
    for comment, path in {"millrace": login, **nodes}.items():
        for old in (path, public_part(path)):
            old.unlink(missing_ok=True)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        except FileNotFoundError:
            raise UnfitError("there is no 'ssh-keygen' on this host (package openssh-client)") from None
        if done.returncode:
            raise UnfitError(f"{path}: the key cannot be made: {done.stderr.strip() or done.stdout.strip()}")


def public(path: Path) -> str:
    """Return the public part of the key at `path`: type and key, without the comment."""
    return " ".join(public_part(path).read_text().split()[:2])


def known_hosts(keys: Mapping[str, Path], addresses: Mapping[str, str]) -> str:
    """Return the text of a known_hosts file with every node's name and address."""
    return "".join(f"{name},{addresses[name]} {public(path)}\n" for name, path in keys.items())


def main() -> int:
    """Run the daemon; return the exit status."""
    stop_signals: list[int] = []

    def request_stop(number: int, frame: FrameType | None) -> None:
        stop_signals.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, request_stop)

    def report_progress(line: str) -> None:
        with suppress(BrokenPipeError):
            print(line, flush=True)  # noqa: T201 - read by the parent process

    line = b""
    while not line.endswith(b"\n"):
        more = os.read(0, 1 << 20)
        if not more:
            return 0
        line += more
    with EmulationDaemon(msgspec.json.decode(line, type=ClusterRequest), report_progress) as daemon:
        try:
            daemon.up()
        except MillraceError as fault:
            report_progress(printable(f"{fault.exit_status} {fault}"))
            return fault.exit_status
        report_progress(READY)
        # The parent does not read our output any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        daemon.serve(lambda: bool(stop_signals))
    return 0


if __name__ == "__main__":
    sys.exit(main())
