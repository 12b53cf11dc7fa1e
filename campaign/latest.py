"""The campaign that a user means by a folder or by the word `latest`."""

from pathlib import Path

from inventory.errors import InputError

RESULTS = Path("results")
LATEST = Path("latest")


def find_campaign(folder: Path, results: Path = RESULTS) -> Path:
    """The folder itself, or for `latest`, where there is no such folder, the newest campaign below `results`.

    Raises:
        InputError: `latest` is asked for and there is no campaign yet.
    """
    if folder != LATEST or folder.exists():
        return folder
    # The folder's name is the campaign's start in UTC, so the names' order is that in time.
    found = [path.parent.resolve() for path in results.glob("*/latest/campaign.json")]
    if not found:
        raise InputError(f"latest: no campaign below {results}/; give the folder that holds campaign.json")
    return max(found, key=lambda path: path.name)
