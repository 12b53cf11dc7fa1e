"""The process that keeps an emulated cluster: it brings it up, stands behind its nodes' files, and takes it down.

`python -P -m controller.emulation.daemon` reads one line, a `ClusterRequest`, and says line by line how far it is,
then `ready` or why it cannot be. The cluster goes down with the end of the input, so that it ends with whoever started
it, unless the line `keep` comes first; SIGTERM takes it down in any case. While it is up, programs of the same user
talk to it over a socket in the cluster's folder: one JSON object a line, one answer each
(`controller.emulation.daemon_client`).
"""

import os
import selectors
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic
from types import FrameType

import msgspec

from controller.emulation.daemon_client import SOCKET, DaemonReply, DaemonRequest
from controller.emulation.description import ClusterRequest, Description, Member, Origin, forget_description
from controller.emulation.folder import KEEPER_LOG, KNOWN_HOSTS, NODES, RELAY_LOG, clear, forget, logs_in, remember
from controller.emulation.inotify import Watch
from controller.emulation.keys import known_hosts, make_keys, public, write_programs
from controller.emulation.network import EmulatedNetwork, NetworkPlan, new_prefix
from controller.emulation.node import EmulatedNode, files_of_node
from controller.emulation.node_init import NodePlan
from controller.emulation.sysfs_effects import RefusedWrite, SysfsEffects
from controller.host.cgroups import Group, find_hierarchy
from controller.host.cleanup_log import CleanupLog, this_owner
from controller.host.process_identity import identify
from controller.host.state_folder import state_folder
from inventory.errors import MillraceError, RunError, UnfitError
from inventory.foreign import printable

KEEP = b"keep\n"
READY = "ready"

_TICK_S = 0.05
_LOOK_S = 1.0
"""What was written is heard of at once; for what was not, everything is read so often."""

_SHELL_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


class EmulationDaemon:
    """A cluster, from `up` until the block around it ends."""

    def __init__(self, request: ClusterRequest, tell: Callable[[str], None]) -> None:
        """Plan it; `tell` hears how far it is."""
        self.request, self._tell = request, tell
        self.folder = Path(request.folder)
        self._stack = ExitStack()
        self._effects: dict[str, SysfsEffects] = {}
        self._nodes: dict[str, EmulatedNode] = {}
        self._refused: list[RefusedWrite] = []
        self._faults: list[str] = []
        self._watch = Watch()
        self._server = self._stack.enter_context(socket.socket(socket.AF_UNIX))

    def __enter__(self) -> "EmulationDaemon":
        return self

    def __exit__(self, *_: object) -> None:
        forget_description(self.folder)
        self._stack.close()

    def _leave(self, states: Path) -> None:
        clear(self.folder, Path(self.request.key))
        if not any(log.stat().st_size for log in logs_in(self.folder)):
            forget(self.folder, states)

    def up(self) -> None:
        """Bring it up.

        Raises:
            MillraceError: this host cannot do it, or something went wrong; leaving the block removes what was made.
        """
        clear(self.folder, Path(self.request.key))
        states = state_folder()
        remember(self.folder, states)
        self._stack.callback(self._leave, states)
        state = self._stack.enter_context(CleanupLog(self.folder))
        plan = NetworkPlan(new_prefix(), tuple(self.request.machines), self.request.links)
        hierarchy = find_hierarchy()
        groups = {name: Group(hierarchy, f"{plan.prefix}/{name}") for name in plan.nodes}
        everybody = Group(hierarchy, plan.prefix)
        for folder in everybody.folders:
            state.group(folder)
        for group in groups.values():
            group.make()
        # What others do on this host must not decide what nodes are; their quotas bound what they take from others.
        everybody.prefer()
        network = EmulatedNetwork(plan, state, self.folder / RELAY_LOG)
        shaping = network.up()
        self._tell("network")
        keys = {name: self.folder / NODES / name / "host_key" for name in plan.nodes}
        for key in keys.values():
            (key.parent / "root").mkdir(parents=True)
        make_keys(Path(self.request.key), keys)
        addresses = {name: end.address for name, end in network.nodes.items()}
        known = known_hosts(keys, addresses)
        (self.folder / KNOWN_HOSTS).write_text(known)
        write_programs(self.folder, network.controller.path)
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
            self._nodes[name] = EmulatedNode(node, self.folder / KEEPER_LOG)
            self._stack.callback(self._nodes[name].stop)
            state.started(self._nodes[name].process, f"node {name}")
        members = {}
        for name, running in self._nodes.items():
            pid = running.wait()
            members[name] = Member(pid, groups[name].name, self.request.machines[name])
            machine, root = self.request.machines[name], files_of_node(pid)
            self._effects[name] = SysfsEffects(name, machine, root, groups[name], self._refused.append)
            self._watch.add(name, self._effects[name].folders)
            self._tell(name)
        self._server.bind(str(self.folder / SOCKET))
        self._server.listen()
        me = this_owner(self.folder)
        origin = Origin(identify(os.getppid()) or me.process, str(Path(__file__).parents[2]), me.since)
        Description(self.request, origin, plan, shaping, me.process, members).write()

    def keep(self, must_end: Callable[[], bool]) -> None:
        """Stand behind the nodes' files, and answer, until the end."""
        kept = False
        looked = monotonic()
        server = self._server
        with selectors.DefaultSelector() as selector:
            for source in (0, server, self._watch):
                selector.register(source, selectors.EVENT_READ)
            while not must_end():
                ready = {key.fileobj for key, _ in selector.select(_TICK_S)}
                written = self._watch.written() if self._watch in ready else set()
                if monotonic() - looked >= _LOOK_S:
                    looked, written = monotonic(), set(self._effects)
                for name in written:
                    self._react(name)
                for effects in self._effects.values():
                    effects.tick()
                if server in ready:
                    self._answer(server)
                if 0 in ready:
                    said = os.read(0, 4096)
                    kept = kept or KEEP in said
                    if kept:
                        selector.unregister(0)
                    elif not said:
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
                answer = DaemonReply(error=f"not understood: {fault}")
            with suppress(OSError):
                client.sendall(msgspec.json.encode(answer) + b"\n")

    def _limit(self) -> DaemonReply:
        for effects in self._effects.values():
            effects.limit(True)
        return self._status()

    def _lift(self) -> DaemonReply:
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


def main() -> int:
    """Keep a cluster; return the exit status."""
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, ask)

    def tell(line: str) -> None:
        with suppress(BrokenPipeError):
            print(line, flush=True)  # noqa: T201 - what whoever started us waits for

    line = b""
    while not line.endswith(b"\n"):
        more = os.read(0, 1 << 20)
        if not more:
            return 0
        line += more
    with EmulationDaemon(msgspec.json.decode(line, type=ClusterRequest), tell) as keeper:
        try:
            keeper.up()
        except MillraceError as fault:
            tell(printable(f"{fault.exit_status} {fault}"))
            return fault.exit_status
        tell(READY)
        # Nobody reads our answers any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        keeper.keep(lambda: bool(asked))
    return 0


if __name__ == "__main__":
    sys.exit(main())
