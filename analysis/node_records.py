"""Records in `run.json` of what was measured of nodes and workers beside traces: capacities and sampled stacks."""

from msgspec import Struct


class ProfileRecord(Struct, frozen=True, kw_only=True):
    """Sampled stacks of a worker: the file and its number of samples, or the reason for a missing file."""

    node: str
    slot: int | None = None
    file: str | None = None
    samples: int | None = None
    reason: str | None = None


class Calibrated(Struct, frozen=True):
    """One measured property of a node or of a link.

    Attributes:
        node: id of the node; for a link, the sender.
        to: id of the receiver; null where the property is the node's own.
        what: `cpu` in cores, `link` and `nic` in Mbit/s of wire bytes, `rtt` in ms, `memory` in MB.
        asked, got: value in the inventory, and measured value.
        unit: unit of both.
    """

    node: str
    to: str | None
    what: str
    asked: float
    got: float
    unit: str

    @property
    def error(self) -> float:
        """Relative error of the measured value; negative when it is too small."""
        return self.got / self.asked - 1
