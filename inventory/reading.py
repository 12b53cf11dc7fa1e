"""A cluster from a cluster file or an Ansible inventory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from inventory.ansible_hosts import Hosts, load_hosts
from inventory.calibrated import with_calibrations
from inventory.documents import Document, read
from inventory.errors import InputError
from inventory.finding import find_inventory

_TEXT = {".yml", ".yaml", ".json"}
_OF_GROUPS = {"hosts", "children", "vars"}


def read_cluster(name_or_path: str | Path, meanwhile: Callable[[], object] = lambda: None) -> Document:
    """Return the contents of a cluster file, or of the cluster file equivalent to an Ansible inventory.

    A file whose top key is `nodes` is a cluster file, a folder never is.

    Args:
        name_or_path: name or path of an inventory.
        meanwhile: called while Ansible runs, if it is needed.

    Raises:
        InputError: it does not exist, or cannot be read.
        UnfitError: Ansible is needed and missing.
    """
    path = find_inventory(str(name_or_path))
    document = _as_cluster_file(path)
    return with_calibrations(load_hosts(path, meanwhile).cluster_document if document is None else document, path)


def read_hosts(name_or_path: str | Path) -> Hosts:
    """Return the hosts of an Ansible inventory.

    Raises:
        InputError: it does not exist, or cannot be read; a cluster file has no connection data.
        UnfitError: Ansible is missing.
    """
    path = find_inventory(str(name_or_path))
    if _as_cluster_file(path) is not None:
        raise InputError(
            f"{path}: is a cluster file, which does not say how hosts are reached; give an Ansible inventory"
        )
    return load_hosts(path)


def _as_cluster_file(path: Path) -> Document | None:
    """Return the document, or None for an Ansible inventory."""
    if path.is_dir():
        return None
    try:
        document = read(path)
    except InputError:
        if path.suffix in _TEXT:
            raise
        return None  # INI, a script
    # A top key that is neither is more likely a misspelt `nodes` than an inventory without groups.
    return None if isinstance(document.data, dict) and any(map(_is_group, document.data.values())) else document


def _is_group(value: Any) -> bool:
    return isinstance(value, dict) and bool(_OF_GROUPS & set(value))
