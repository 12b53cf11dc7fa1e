"""What the operator says of a node's meters: `etc/millrace/power.yaml` below the host's root; no file, no wishes."""

from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from agents.host_files import HostFiles
from inventory.documents import read
from inventory.energy_model import EnergyModel, MeterLag

PATH = "etc/millrace/power.yaml"

FEWEST_HZ, MOST_HZ = 0.1, 50.0
DEFAULT_HZ = 10.0

ReaderName = Literal["perf", "rapl", "hwmon", "external", "battery", "model"]


class Pair(Struct, frozen=True, forbid_unknown_fields=True):
    """A voltage and a current of one supply line, as files below `sys/class/hwmon`: `hwmon2/in1_input`."""

    name: str
    voltage: str
    current: str


class Sensors(Struct, frozen=True, forbid_unknown_fields=True):
    """What only the operator knows of hwmon sensors.

    Attributes:
        total: domains whose sum is the node, in place of what the names say.
        pairs: lines whose power is voltage times current.
    """

    total: tuple[str, ...] = ()
    pairs: tuple[Pair, ...] = ()


class Program(Struct, frozen=True, forbid_unknown_fields=True):
    """A program that prints readings of an outlet or a board.

    Attributes:
        command: what to start, without a shell.
        role: what its domains are.
        silence_s: after that long without a word from it, its domains are missing.
        lag: how late its word is, in place of what a calibration has found.
    """

    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    role: Literal["outlet", "board"] = "outlet"
    silence_s: Annotated[float, Meta(gt=0)] = 10.0
    lag: MeterLag | None = None

    @property
    def patience_s(self) -> float:
        """How long after a moment its word about that moment may come."""
        return self.silence_s + max(0.0, self.lag.lag_s if self.lag else 0.0)


class PowerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The file.

    Attributes:
        prefer: readers to try before all others, in this order.
        source: the only reader to use.
        platform: whether the node's total is the platform domain (`psys`), and nothing else.
        ignore: domains that are not read at all.
        rate_hz: samples per second.
        hwmon: see `Sensors`.
        external: the program of the reader `external`.
        model: parameters of the reader `model`, in place of those of the inventory.
        powertop: whether PowerTOP runs beside the primary reader.
    """

    prefer: tuple[ReaderName, ...] = ()
    source: ReaderName | None = None
    platform: bool = False
    ignore: tuple[str, ...] = ()
    rate_hz: Annotated[float, Meta(ge=FEWEST_HZ, le=MOST_HZ)] = DEFAULT_HZ
    hwmon: Sensors = Sensors()
    external: Program | None = None
    model: EnergyModel | None = None
    powertop: bool = False


def settings_of(host: HostFiles) -> PowerSettings:
    """The settings of a host.

    Raises:
        InputError: the file is there, and wrong.
    """
    return read(host.root / PATH).convert(PowerSettings) if host.exists(PATH) else PowerSettings()


def completed(settings: PowerSettings, model: EnergyModel | None, lag: MeterLag | None) -> PowerSettings:
    """The settings with what else is known of a node, where they do not say it themselves."""
    external = settings.external
    if external is not None and external.lag is None:
        external = replace(external, lag=lag)
    return replace(settings, model=settings.model or model, external=external)
