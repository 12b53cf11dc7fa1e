"""The machine emulated by a node, as described by `millrace_emulate`."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from inventory.amounts import Positive
from inventory.cluster import AtLeastOne, Name
from inventory.energy_model import EnergyModel

LOWEST = 0.4
"""Default lowest clock of a machine, as a fraction of its highest."""

STEPS = 5
"""Number of clocks from lowest to highest, both included."""

KHZ = 1_000_000
"""kHz per GHz, since the kernel's files use kHz."""

Governor = str


class Machine(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename={"kind": "class"}
):
    """Hardware that the node presents, and the share of this host that it uses.

    Attributes:
        cores: physical cores, over all sockets, without siblings.
        sockets: number of sockets, with equal numbers of cores.
        ghz: highest clock without turbo.
        min_ghz: lowest clock; default `LOWEST` of the highest.
        turbo_ghz: clock enabled by `boost`; None: no turbo.
        share_per_core: cores of this host per core at `ghz`.
        memory_mb: total memory of the node, in MiB.
        disk_mb: maximum size of its files, in MiB of this host's memory.
        kind: class of the machine, shown in `/proc/cpuinfo` as the model.
        power: energy model of its energy counters.
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
        """Cores of this host used by the whole machine at its highest clock without turbo."""
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
        """Return the socket of a core; cores are numbered socket by socket."""
        return core * self.sockets // self.cores
