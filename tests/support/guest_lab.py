"""Lab of two Debian machines with a private network between them."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from debian_image import OPERATOR
from guest import Guest, Hardware
from guest_image import Image

ADDRESSES = {"n1": "10.9.8.1", "n2": "10.9.8.2"}
"""Addresses in the private network; files of the image assign them by MAC address."""

STATE_SCRIPT = Path(__file__).with_name("debian_state.sh")
"""Shell script that prints the state of a machine."""

START_S = 900.0
"""A boot takes 20 s of CPU time on one core, and the host may be busy."""


class Lab:
    """Two running guests.

    Attributes:
        folder: folder of inventories and related files.
        nodes: machines by name.
        key: the operator's public key.
    """

    def __init__(self, folder: Path, nodes: Mapping[str, Guest], key: str) -> None:
        self.folder = folder
        self.nodes = nodes
        self.key = key

    def state(self) -> dict[str, list[str]]:
        """Return the state of the machines, by name."""
        return {
            name: sorted(node.output_of("bash -s", STATE_SCRIPT.read_bytes()).splitlines())
            for name, node in self.nodes.items()
        }

    def inventory(self, variables: Mapping[str, object], **of_nodes: Mapping[str, object]) -> Path:
        """Write an inventory of both machines, with common variables and variables per node."""
        hosts = {
            name: {**node.ansible_variables(), "millrace_address": ADDRESSES[name], **of_nodes.get(name, {})}
            for name, node in self.nodes.items()
        }
        path = self.folder / "lab.yml"
        workers = {"vars": {"ansible_user": OPERATOR, **variables}, "hosts": hosts}
        path.write_text(yaml.safe_dump({"all": {"children": {"workers": workers}}}, sort_keys=False))
        return path


def _hardware(name: str, folder: Path) -> Hardware:
    (other,) = ADDRESSES.keys() - {name}
    ends = f"local.type=unix,local.path={folder}/{name}.lan,remote.type=unix,remote.path={folder}/{other}.lan"
    mac = f"52:54:00:4d:52:{int(ADDRESSES[name].rpartition('.')[2]):02x}"
    return Hardware(
        # n1 runs a Spark master, a worker, its executor and a driver at a time, each with a JVM.
        memory_mb=2560,
        start_s=START_S,
        # The system log, including the SSH server's messages, goes to the console, too.
        kernel_arguments=(f"systemd.hostname={name}", "systemd.journald.forward_to_console=1"),
        has_internet=True,
        devices=("-netdev", f"dgram,id=lan,{ends}", "-device", f"virtio-net-pci,netdev=lan,mac={mac},romfile="),
    )


@contextmanager
def lab(image: Image) -> Iterator[Lab]:
    """Start two guests with all of their services; they end with the block."""
    with TemporaryDirectory(prefix="millrace-lab-") as place, ExitStack() as ending:
        folder = Path(place)
        nodes = {}
        for name in ADDRESSES:
            (folder / name).mkdir()
            nodes[name] = Guest(image, folder / name, _hardware(name, folder))
            ending.callback(nodes[name].end)
        for node in nodes.values():
            node.wait_until_up()
            node.output_of("systemctl is-system-running --wait")
        yield Lab(folder, nodes, image.key.with_suffix(".pub").read_text().strip())
