"""Finding a cluster's file: a path, or the name of an inventory that comes with Millrace."""

from pathlib import Path

from inventory.errors import InputError, nearest

SHIPPED = Path(__file__).parent


def shipped_inventories() -> dict[str, Path]:
    """Name -> file of the inventories that come with Millrace."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yml"))}


def find_inventory(name_or_path: str) -> Path:
    """Return the file that `name_or_path` means; a file of that name wins over a shipped inventory.

    Raises:
        InputError: there is neither.
    """
    path = Path(name_or_path)
    if path.is_file():
        return path
    shipped = shipped_inventories()
    if name_or_path in shipped:
        return shipped[name_or_path]
    if path.exists():
        raise InputError(f"{path}: is no file; a cluster file or the name of an inventory was expected")
    hint = nearest(name_or_path, shipped)
    raise InputError(f"{name_or_path}: there is no such file, and no inventory of that name{hint}")
