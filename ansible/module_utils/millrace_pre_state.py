"""What a host was like before the roles changed it: one file on the host, a section per subject.

A section is on disk before the first change that it covers, and is never overwritten, so that a second provisioning
cannot take its own work for the state found. Sections of settings that a reboot undoes (clock, cores, qdiscs, cgroups)
carry the boot that they are of: one of an earlier boot is void.

    {"version": 1, "sections": {"network": {"boot_id": "7c1f...", "before": {...}, "applied": {...}}}}
"""

import json
import os
import tempfile
from pathlib import Path

VERSION = 1


class PreStateError(Exception):
    """The file is there, and is not one of ours: nothing may be changed, for nothing could be put back."""


def boot_id(root="/"):
    """The name that the kernel gave to this boot."""
    return (Path(root) / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class PreState:
    """The sections in the file `pre_state.json` of the folder `state`, as of the boot `boot`."""

    def __init__(self, state, boot):
        self.path = Path(state) / "pre_state.json"
        self._boot = boot

    def sections(self):
        """Every section that holds for this boot, by name.

        Raises:
            PreStateError: the file cannot be understood.
        """
        return {name: section for name, section in self._read().items() if section.get("boot_id") in (None, self._boot)}

    def section(self, name):
        """The section, or None when there is none for this boot."""
        return self.sections().get(name)

    def save(self, name, before, volatile=False):
        """Keep what was found, unless it is kept already; whether it was written."""
        if self.section(name) is not None:
            return False
        section = {"before": before}
        if volatile:
            section["boot_id"] = self._boot
        self._write({**self._read(), name: section})
        return True

    def note(self, name, applied):
        """Keep what was applied beside what was found; the section is there."""
        section = {**self.sections()[name], "applied": applied}
        if section != self.section(name):
            self._write({**self._read(), name: section})

    def drop(self, name):
        """Forget a section, because what it held has been put back; the file goes with its last one.

        Returns:
            Whether there was such a section.
        """
        sections = self._read()
        if sections.pop(name, None) is None:
            return False
        if sections:
            self._write(sections)
        else:
            self.path.unlink()
        return True

    def _read(self):
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        try:
            document = json.loads(text)
            version, sections = document["version"], document["sections"]
        except (ValueError, KeyError, TypeError) as fault:
            raise PreStateError(f"{self.path} is not a file of the state before provisioning: {fault!r}") from fault
        if version != VERSION:
            raise PreStateError(f"{self.path} has version {version!r}; this is Millrace with version {VERSION}")
        return sections

    def _write(self, sections):
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=str(self.path.parent), prefix=".pre_state-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                json.dump({"version": VERSION, "sections": sections}, stream, indent=1, sort_keys=True)
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink()
            raise
        folder = os.open(str(self.path.parent), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
