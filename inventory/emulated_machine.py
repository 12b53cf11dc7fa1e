"""The machine that a node of an emulated cluster stands for, as `millrace_emulate` gives it."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from inventory.amounts import Positive
from inventory.cluster import AtLeastOne, Name
from inventory.energy_model import EnergyModel

LOWEST = 0.4
"""Lowest clock of a machine that names none, as a part of its highest."""

STEPS = 5
"""Clocks between lowest and highest, both included."""

KHZ = 1_000_000
"""kHz of a GHz: the kernel's files count in kHz."""

Governor = str


class Machine(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename={"kind": "class"}
):
    """What the node shows of itself, and how much of this host stands behind it.

    Attributes:
        cores: physical cores, over all sockets, without siblings.
        sockets: they are spread evenly.
        ghz: highest clock without turbo.
        min_ghz: lowest clock; None: `LOWEST` of the highest.
        turbo_ghz: clock that `boost` adds; None: the machine has no turbo.
        share_per_core: cores of this host that one core at `ghz` is worth.
        memory_mb: all memory of the node, in MiB.
        disk_mb: how much its files may grow, in MiB of this host's memory.
        kind: name of the machine's class, which stands in `/proc/cpuinfo` as the model.
        power: what its energy counters follow.
    """

    cores: Annotated[int, Meta(ge=1, le=256)]
    ghz: Annotated[float, Meta(ge=0.1, le=10)]
    share_per_core: Annotated[float, Meta(ge=0.01, le=1)]
    memory_mb: Annotated[int, Meta(ge=64)]
    sockets: AtLeastOne = 1
    min_ghz: Positive | None = None
    turbo_ghz: Positive | None = None
    disk_mb: Annotated[int, Meta(ge=16)] = 2048
    kind: Name = "emulated"
    power: EnergyModel = EnergyModel(p_s=10, p_d=30)

    @property
    def share(self) -> float:
        """Cores of this host that the whole machine is worth at its highest clock without turbo."""
        return self.cores * self.share_per_core

    @property
    def khz(self) -> Sequence[int]:
        """Clocks without turbo in kHz, highest first, in whole MHz."""
        lowest = self.ghz * LOWEST if self.min_ghz is None else self.min_ghz
        gap = (self.ghz - lowest) / (STEPS - 1)
        return [round((self.ghz - at * gap) * 1000) * 1000 for at in range(STEPS)] if gap > 0 else [self.top_khz]

    @property
    def top_khz(self) -> int:
        """Highest clock without turbo."""
        return round(self.ghz * 1000) * 1000

    @property
    def turbo_khz(self) -> int | None:
        """Clock with turbo."""
        return None if self.turbo_ghz is None else round(self.turbo_ghz * 1000) * 1000

    def socket_of(self, core: int) -> int:
        """Return the socket of a core: they are numbered socket by socket."""
        return core * self.sockets // self.cores
