"""Original CPU settings of a host, with everything needed to restore them."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from agents.cpu.topology import FOLDER, Core
from agents.host_files import HostFiles
from inventory.errors import InputError

BOOT_ID = "proc/sys/kernel/random/boot_id"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every file that can be set, with its value; stored as JSON in the journal and by provisioning.

    Attributes:
        boot_id: the boot of the snapshot; a reboot resets all settings. None: unknown.
        values: path -> text, before any change.
        later: path -> text of files that appeared afterwards, when they appeared: CPUs that are offline have no
            clock files until they come online.
        unreadable: files that exist but could not be read; they are never written.
        cores: the CPUs of each core; the kernel reports them only for online CPUs.
    """

    boot_id: str | None
    values: Mapping[str, str]
    later: Mapping[str, str] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    cores: tuple[Core, ...] = ()

    def value(self, path: str) -> str | None:
        """Return the value of a file when first seen; None for a file that was never seen."""
        return self.values.get(path, self.later.get(path))

    def with_later(self, values: Mapping[str, str]) -> "Snapshot":
        """Return a copy with files that have just appeared."""
        return dataclasses.replace(self, later={**self.later, **values})

    def is_of_this_boot(self, host: HostFiles) -> bool:
        """Return whether the host has not rebooted since; an unknown boot counts as the same."""
        return self.boot_id is None or self.boot_id == boot_id(host)

    def to_document(self) -> dict[str, Any]:
        """Return the snapshot as JSON."""
        return {
            "version": VERSION,
            "boot_id": self.boot_id,
            "values": dict(self.values),
            "later": dict(self.later),
            "unreadable": list(self.unreadable),
            "cores": [{"socket": core.socket, "cpus": list(core.cpus)} for core in self.cores],
        }

    @classmethod
    def from_document(cls, document: Any, where: str = "before") -> Self:
        """Read the output of `to_document`.

        Raises:
            InputError: the document is invalid, or names files outside of the CPU folder.
        """
        try:
            if document["version"] != VERSION:
                raise InputError(f"{where}: version: got {document['version']!r}, expected {VERSION}")
            values, later = dict(document["values"]), dict(document["later"])
            cores = tuple(Core(int(c["socket"]), tuple(map(int, c["cpus"]))) for c in document["cores"])
            snapshot = cls(document["boot_id"], values, later, tuple(document["unreadable"]), cores)
        except (KeyError, TypeError, ValueError, AttributeError) as fault:
            raise InputError(f"{where}: not the CPU settings of a host: {type(fault).__name__}: {fault}") from None
        for path, value in [*values.items(), *later.items()]:
            # These files are written by root.
            if not (isinstance(path, str) and path.startswith(FOLDER + "/")) or ".." in path.split("/"):
                raise InputError(f"{where}: {path!r} is not a file below /{FOLDER}")
            if not isinstance(value, str):
                raise InputError(f"{where}: {path}: got {value!r}, expected text")
        return snapshot


def boot_id(host: HostFiles) -> str | None:
    """Return the kernel's random id of this boot; None when it cannot be read."""
    return host.read_if_there(BOOT_ID) or None
