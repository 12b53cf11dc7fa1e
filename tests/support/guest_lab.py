"""A lab: two whole Debians, with a network between them that nobody else is on."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from debian_image import OPERATOR
from guest import Guest, Hardware
from guest_image import Image

ADDRESSES = {"n1": "10.9.8.1", "n2": "10.9.8.2"}
"""Of the nodes, in the network between them; files of the image give them to the machines by their MAC addresses."""

FOUND = Path(__file__).with_name("debian_found.sh")
"""What a shell does to say what a machine is like."""

START_S = 900.0
"""It takes 20 s of one core's time to start, and a host may have many other things to do."""


class Lab:
    """Two guests that are up.

    Attributes:
        folder: for inventories and what lies beside them.
        nodes: the machines, by name.
        key: the operator's public key.
    """

    def __init__(self, folder: Path, nodes: Mapping[str, Guest], key: str) -> None:
        self.folder = folder
        self.nodes = nodes
        self.key = key

    def found(self) -> dict[str, list[str]]:
        """What the machines are like, by name."""
        return {
            name: sorted(node.says("bash -s", FOUND.read_bytes()).splitlines()) for name, node in self.nodes.items()
        }

    def inventory(self, variables: Mapping[str, object], **of_nodes: Mapping[str, object]) -> Path:
        """An inventory of the two, with what is asked of both, and of each."""
        hosts = {
            name: {**node.reached_by(), "millrace_address": ADDRESSES[name], **of_nodes.get(name, {})}
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
        # On the first there are a Spark master, a worker, its executor and a driver at a time, each with a JVM.
        memory_mb=2560,
        start_s=START_S,
        # What the system logs comes to the console, too, its SSH server's words among it.
        words=(f"systemd.hostname={name}", "systemd.journald.forward_to_console=1"),
        reaches_out=True,
        devices=("-netdev", f"dgram,id=lan,{ends}", "-device", f"virtio-net-pci,netdev=lan,mac={mac},romfile="),
    )


@contextmanager
def lab(image: Image) -> Iterator[Lab]:
    """Two guests that are up, with all of their services started; they end with the block."""
    with TemporaryDirectory(prefix="millrace-lab-") as place, ExitStack() as ending:
        folder = Path(place)
        nodes = {}
        for name in ADDRESSES:
            (folder / name).mkdir()
            nodes[name] = Guest(image, folder / name, _hardware(name, folder))
            ending.callback(nodes[name].end)
        for node in nodes.values():
            node.wait_until_up()
            node.says("systemctl is-system-running --wait")
        yield Lab(folder, nodes, image.key.with_suffix(".pub").read_text().strip())
