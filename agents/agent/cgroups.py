"""The control groups that provisioning made for agents, entered before anything is started.

On hosts without systemd the role `limits` leaves the file `groups` beside the environment that agents run in: one path
per line, to which a process writes its id to be in the group. Whatever it starts is in it too.
"""

import os
import sys
from pathlib import Path

from inventory.errors import UnfitError

ENTRANCES = "groups"


def enter_groups(home: Path) -> None:
    """Enter the groups that `home` names; none where it names none.

    Raises:
        UnfitError: a group is not there any more, or does not let this user in: the limits would not hold.
    """
    try:
        paths = (home / ENTRANCES).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return
    for path in paths:
        try:
            Path(path).write_text(f"{os.getpid()}\n", encoding="ascii")
        except OSError as fault:
            raise UnfitError(
                f"{path}: {fault.strerror}: this node's limits do not hold, perhaps since a reboot: provision it again"
            ) from None


def home_of_environment() -> Path:
    """The folder in which the environment of this Python lies."""
    return Path(sys.prefix).parent
