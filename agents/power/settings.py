"""The operator's settings of a node's meters: `etc/millrace/power.yaml` below the host's root; optional."""

from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from agents.host_files import HostFiles
from inventory.documents import read
from inventory.values import EnergyModel, MeterLag

PATH = "etc/millrace/power.yaml"

FEWEST_HZ, MOST_HZ = 0.1, 50.0
DEFAULT_HZ = 10.0

ReaderName = Literal["perf", "rapl", "hwmon", "external", "battery", "model"]


class SupplyLine(Struct, frozen=True, forbid_unknown_fields=True):
    """Voltage and current of one supply line, as files below `sys/class/hwmon`: `hwmon2/in1_input`."""

    name: str
    voltage: str
    current: str


class Sensors(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of hwmon sensors.

    Attributes:
        total: domains whose sum is the node, instead of those chosen by name.
        pairs: supply lines whose power is voltage times current.
    """

    total: tuple[str, ...] = ()
    pairs: tuple[SupplyLine, ...] = ()


class MeterProgram(Struct, frozen=True, forbid_unknown_fields=True):
    """A program that prints readings of an outlet or a board.

    Attributes:
        command: program and arguments, started without a shell.
        role: role of its domains.
        silence_s: time without a reading after which its domains are missing.
        lag: lag of its readings, instead of that found by a calibration.
    """

    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    role: Literal["outlet", "board"] = "outlet"
    silence_s: Annotated[float, Meta(gt=0)] = 10.0
    lag: MeterLag | None = None

    @property
    def patience_s(self) -> float:
        """Longest delay of a reading in seconds."""
        return self.silence_s + max(0.0, self.lag.lag_s if self.lag else 0.0)


class PowerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Content of the file.

    Attributes:
        prefer: readers to try before all others, in this order.
        source: the only reader to use.
        platform: whether the node's total is only the platform domain (`psys`).
        ignore: domains that are not read.
        rate_hz: samples per second.
        hwmon: see `Sensors`.
        external: the program of the reader `external`.
        model: parameters of the reader `model`, instead of those of the inventory.
        powertop: whether PowerTOP runs beside the primary reader.
    """

    prefer: tuple[ReaderName, ...] = ()
    source: ReaderName | None = None
    platform: bool = False
    ignore: tuple[str, ...] = ()
    rate_hz: Annotated[float, Meta(ge=FEWEST_HZ, le=MOST_HZ)] = DEFAULT_HZ
    hwmon: Sensors = Sensors()
    external: MeterProgram | None = None
    model: EnergyModel | None = None
    powertop: bool = False


def meter_settings(host: HostFiles) -> PowerSettings:
    """Return the settings of a host.

    Raises:
        InputError: the file exists and is invalid.
    """
    return read(host.root / PATH).convert(PowerSettings) if host.exists(PATH) else PowerSettings()


def completed_settings(settings: PowerSettings, model: EnergyModel | None, lag: MeterLag | None) -> PowerSettings:
    """Return the settings, completed by a model and a lag where they contain none."""
    external = settings.external
    if external is not None and external.lag is None:
        external = replace(external, lag=lag)
    return replace(settings, model=settings.model or model, external=external)
