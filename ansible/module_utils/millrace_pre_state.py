"""Original state of a host before provisioning: one file on the host, with a section per subject.

A section is on disk before the first change that it covers, and is never overwritten, so that a second provisioning
does not save its own changes as the original state. Sections of settings that a reboot resets (clock, cores, qdiscs,
cgroups) contain the boot id; a section of an earlier boot is void.

    {"version": 1, "sections": {"network": {"boot_id": "7c1f...", "before": {...}, "applied": {...}}}}
"""

import contextlib
import json
import os
import tempfile
from pathlib import Path

VERSION = 1


class PreStateError(Exception):
    """Raised when the file is invalid: nothing may be changed, because nothing could be restored."""


def boot_id(root="/"):
    """Return the kernel's id of this boot."""
    return (Path(root) / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class PreState:
    """The sections in the file `pre_state.json` of the folder `state`, as of the boot `boot`."""

    def __init__(self, state, boot):
        self.path = Path(state) / "pre_state.json"
        self._boot = boot

    def sections(self):
        """Return every section that is valid for this boot, by name.

        Raises:
            PreStateError: the file is invalid.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        try:
            document = json.loads(text)
            version, sections = document["version"], dict(document["sections"])
        except (ValueError, KeyError, TypeError) as fault:
            raise PreStateError(f"{self.path} does not hold a state before provisioning: {fault!r}") from fault
        if version != VERSION:
            raise PreStateError(f"{self.path} has version {version!r}; this Millrace reads version {VERSION}")
        return {name: section for name, section in sections.items() if section.get("boot_id") in (None, self._boot)}

    def section(self, name):
        """Return the section, or None without one for this boot."""
        return self.sections().get(name)

    def save(self, name, before, volatile=False):
        """Save the original state unless it is saved already; return whether it was written."""
        sections = self.sections()
        if name in sections:
            return False
        sections[name] = {"before": before, **({"boot_id": self._boot} if volatile else {})}
        self._write(sections)
        return True

    def note(self, name, applied):
        """Save the applied settings in an existing section."""
        sections = self.sections()
        if sections[name].get("applied") != applied:
            sections[name]["applied"] = applied
            self._write(sections)

    def drop(self, name):
        """Remove a section after its state is restored; return whether there was one.

        The file is removed with its last section, and the folder with the file if it is empty.
        """
        sections = self.sections()
        there = sections.pop(name, None) is not None
        if sections:
            if there:
                self._write(sections)
        else:
            self.path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self.path.parent.rmdir()
        return there

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
