"""The CPU settings of a host as they were found, and what is needed to put them back."""

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
    """Every file that can be set, with its value; JSON in a journal and in what provisioning keeps.

    Attributes:
        boot_id: the boot for which it holds; the next one begins with the kernel's own settings. None: not known.
        values: path -> text, as found before anything was written.
        later: path -> text of files that appeared afterwards, as found when they did: CPUs that were off have no
            clock to set until they are on.
        unreadable: files that were there and could not be read; they are never written.
        cores: which CPUs are one core; the kernel says it only of CPUs that are on.
    """

    boot_id: str | None
    values: Mapping[str, str]
    later: Mapping[str, str] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    cores: tuple[Core, ...] = ()

    def value(self, path: str) -> str | None:
        """What a file held when it was first seen; None when it was not."""
        return self.values.get(path, self.later.get(path))

    def with_later(self, values: Mapping[str, str]) -> "Snapshot":
        """The same, with files that have just appeared."""
        return dataclasses.replace(self, later={**self.later, **values})

    def is_of_this_boot(self, host: HostFiles) -> bool:
        """Whether the host has not been started anew since; unknown counts as the same boot."""
        return self.boot_id is None or self.boot_id == boot_id(host)

    def to_document(self) -> dict[str, Any]:
        """As JSON."""
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
        """Read what `to_document` gave.

        Raises:
            InputError: it is not that, or names files that are none of a CPU's.
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
            # It is written to as root.
            if not (isinstance(path, str) and path.startswith(FOLDER + "/")) or ".." in path.split("/"):
                raise InputError(f"{where}: {path!r} is not a file below /{FOLDER}")
            if not isinstance(value, str):
                raise InputError(f"{where}: {path}: got {value!r}, expected text")
        return snapshot


def boot_id(host: HostFiles) -> str | None:
    """The kernel's random id of this boot; None where there is none to read."""
    return host.read_if_there(BOOT_ID) or None
