"""What a host was like before the roles changed it: one file on the host, a section per subject.

A section is on disk before the first change that it covers, and is never overwritten, so that a second provisioning
cannot take its own work for the state found. Sections of settings that a reboot undoes (clock, cores, qdiscs, cgroups)
carry the boot that they are of: one of an earlier boot is void.

    {"version": 1, "sections": {"network": {"boot_id": "7c1f...", "before": {...}, "applied": {...}}}}
"""

import contextlib
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
        """The section, or None when there is none for this boot."""
        return self.sections().get(name)

    def save(self, name, before, volatile=False):
        """Keep what was found, unless it is kept already; whether it was written."""
        sections = self.sections()
        if name in sections:
            return False
        sections[name] = {"before": before, **({"boot_id": self._boot} if volatile else {})}
        self._write(sections)
        return True

    def note(self, name, applied):
        """Keep what was applied beside what was found, which is kept already."""
        sections = self.sections()
        if sections[name].get("applied") != applied:
            sections[name]["applied"] = applied
            self._write(sections)

    def drop(self, name):
        """Forget a section, because what it held has been put back; whether there was one.

        The file goes with its last section, and the folder with the file when it holds nothing else.
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
