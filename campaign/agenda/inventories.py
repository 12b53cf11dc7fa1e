"""Inventories of an agenda: the one under `inventory`, or the values of the factor `inventory`."""

from collections.abc import Callable
from pathlib import Path

from analysis.factors import INVENTORY, value_text
from campaign.agenda.agenda import Agenda
from controller.host.addresses import find_beside
from inventory.documents import Located, Origin
from inventory.errors import InputError
from inventory.reading import ReadCluster, read_cluster


def read_clusters(agenda: Located[Agenda], beside: Path, meanwhile: Callable[[], object]) -> dict[str, ReadCluster]:
    """Return inventory, as in `Run.inventory`, -> its cluster.

    Args:
        agenda: the agenda.
        beside: the agenda's folder; paths of inventories may be relative to it.
        meanwhile: called while Ansible reads an inventory.

    Raises:
        InputError: there is no such inventory, or it is invalid.
        UnfitError: Ansible is needed and missing.
    """
    if INVENTORY not in agenda.value.factors:
        return {"": _read(agenda.value.inventory, agenda.origin / "inventory", beside, meanwhile)}
    found = {}
    for at, value in enumerate(agenda.value.factors[INVENTORY]):
        origin = agenda.origin / "factors" / INVENTORY / at
        if not isinstance(value, str):
            raise origin.error(f"got {value_text(value)}, expected the name or the path of an inventory")
        if value not in found:
            found[value] = _read(value, origin, beside, meanwhile)
    return found


def _read(name_or_path: str, origin: Origin, beside: Path, meanwhile: Callable[[], object]) -> ReadCluster:
    try:
        path = find_beside(name_or_path, beside)
    except InputError as fault:
        raise origin.error(str(fault)) from None
    return read_cluster(path, meanwhile)
