"""What an emulated cluster was asked to be, and what it turned out to be when it was measured."""

from typing import Literal

from msgspec import Struct


class Calibrated(Struct, frozen=True):
    """One property of a node, or of the link from it to another.

    Attributes:
        node: id of the node; for a link, the sender.
        to: id of the receiver; None where the property is the node's own.
        what: `cpu` in cores, `link` in Mbit/s of wire bytes, `rtt` in ms, `memory` in MB.
        asked: what the inventory asks for.
        got: what was measured.
        unit: of both.
    """

    node: str
    to: str | None
    what: Literal["cpu", "link", "rtt", "memory"]
    asked: float
    got: float
    unit: str

    @property
    def error(self) -> float:
        """By which part of what was asked the measurement is off; negative when it is too small."""
        return self.got / self.asked - 1
