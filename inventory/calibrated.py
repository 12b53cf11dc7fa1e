"""Results of `millrace calibrate`: one file per node, beside the inventory.

A node without `power` in the inventory gets the model of its calibration, or that of another node of its class. The
meter lag is taken only from its own calibration.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from inventory.ansible_listing import FACTS
from inventory.documents import Document, read, to_plain
from inventory.energy_model import EnergyModel, MeterLag

FOLDER = "power"


class Calibrated(Struct, frozen=True, kw_only=True):
    """The part of such a file that is read here.

    Attributes:
        node, node_class: the node, and its class, if any.
        power: the energy model.
        meter_lag: lag of its meter; None for a meter without lag, or with an unknown one.
    """

    node: str
    node_class: str | None = None
    power: EnergyModel
    meter_lag: MeterLag | None = None


def folder_of(inventory: Path) -> Path:
    """Return the folder of the calibrations of an inventory's nodes."""
    around = inventory if inventory.is_dir() else inventory.parent
    return around / FACTS / FOLDER / inventory.stem


def calibrations(inventory: Path) -> dict[str, Calibrated]:
    """Return node -> calibration.

    Raises:
        InputError: a file is not a calibration.
    """
    found = (read(path).convert(Calibrated) for path in sorted(folder_of(inventory).glob("*.json")))
    return {each.node: each for each in found}


def with_calibrations(document: Document, inventory: Path) -> Document:
    """Return the same cluster file with `power` and `meter_lag` filled in from calibrations.

    Raises:
        InputError: see `calibrations`.
    """
    found = calibrations(inventory)
    nodes = document.data.get("nodes") if found and isinstance(document.data, dict) else None
    for node in nodes if isinstance(nodes, list) else ():
        if isinstance(node, dict) and node.get("power") is None:
            model = _model(node, found)
            if model is not None:
                node["power"] = to_plain(model)
        if isinstance(node, dict) and node.get("meter_lag") is None:
            own = found.get(str(node.get("id")))
            if own is not None and own.meter_lag is not None:
                node["meter_lag"] = to_plain(own.meter_lag)
    return document


def _model(node: Mapping[str, Any], found: Mapping[str, Calibrated]) -> EnergyModel | None:
    own = found.get(str(node.get("id")))
    if own is not None:
        return own.power
    of_class = [each for each in found.values() if each.node_class and each.node_class == node.get("class")]
    return of_class[0].power if of_class else None
