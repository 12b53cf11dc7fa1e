"""Search for a cluster: a file, a folder, or the name of a shipped inventory."""

from pathlib import Path

from inventory.errors import InputError, nearest
from inventory.foreign import printable

SHIPPED = Path(__file__).parent


def shipped_inventories() -> dict[str, Path]:
    """Return name -> file of the inventories shipped with Millrace."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yml"))}


def find_inventory(name_or_path: str) -> Path:
    """Return the path for `name_or_path`: a file, else the shipped inventory of that name, else a folder.

    Raises:
        InputError: none of these exists.
    """
    path = Path(name_or_path)
    if path.is_file():
        return path
    shipped = shipped_inventories()
    if name_or_path in shipped:
        return shipped[name_or_path]
    if path.is_dir():
        return path
    hint = nearest(name_or_path, shipped)
    name = printable(name_or_path)
    raise InputError(f"{name}: there is no such file or folder, and no inventory of that name{hint}")
