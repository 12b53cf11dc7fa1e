"""Limits of CPU time and memory for all processes of one user's agents.

With systemd, the limits are set on the user's slice, which contains all sessions of the user. Otherwise they are set on
a control group `millrace`, which agents enter when they start: the file `groups` in their home lists what to enter.
"""

import os
import pwd
import subprocess
from contextlib import suppress
from pathlib import Path

GROUP = "millrace"
ENTRANCES = "groups"
"""File in `millrace_home`: one path per line, to which an agent writes its process id."""

EVERYTHING = {"cpu": 1, "memory": 1}
"""Request for all limits."""

SYSTEMD_S = 120
"""Timeout of a reload of systemd; a slow machine with many units takes some seconds."""

MIB = 1 << 20
_SHORTEST_QUOTA_US = 1000
_PERIODS_US = (10_000, 100_000)
"""A short period keeps the pauses of a throttled process short; the kernel rejects a quota below 1 ms."""


class LimitError(Exception):
    """Raised for a limit that is impossible on this host; the message contains possible values."""


def quota(cpu_share):
    """Return (quota, period) in microseconds for a share of a core's time; above 1 for several cores."""
    for period in _PERIODS_US:
        if cpu_share * period >= _SHORTEST_QUOTA_US:
            return round(cpu_share * period), period
    raise LimitError(f"millrace_cpu_share: {cpu_share:g} of a core is too little; possible: 0.01 and more")


def percent(cpu_share):
    """Format a share of a core's time for systemd, to a hundredth of a percent."""
    return f"{cpu_share * 100:.2f}".rstrip("0").rstrip(".") + "%"


class Groups:
    """Limits by a separate control group, for cgroup v1 and v2.

    Args:
        root: replaces `/`.
        user: user whose processes may enter the group.
    """

    def __init__(self, root, user):
        self._user = user
        mounts = [line.split() for line in (root / "proc/self/mounts").read_text(encoding="utf-8").splitlines()]
        unified = [root / words[1].lstrip("/") for words in mounts if words[2] == "cgroup2"]
        self.version = 1
        for folder in unified:
            if {"cpu", "memory"} <= set((folder / "cgroup.controllers").read_text(encoding="ascii").split()):
                self.version = 2
                self._parents = {"cpu": folder, "memory": folder}
                return
        split = [(words[3].split(","), root / words[1].lstrip("/")) for words in mounts if words[2] == "cgroup"]
        self._parents = {kind: folder for kind in EVERYTHING for options, folder in split if kind in options}

    def refusals(self, requested):
        """Return why requested limits are impossible on this host, one sentence per reason."""
        absent = [kind for kind, asked in requested.items() if asked and kind not in self._parents]
        if absent:
            return [f"{' and '.join(absent)}: no control group with it is mounted below /sys/fs/cgroup"]
        if self.version == 2 and any(requested.values()) and pwd.getpwuid(os.getuid()).pw_name != self._user:
            reason = f"only root can enter a control group of version 2, and agents run as {self._user}"
            return [f"cpu and memory: {reason}; possible: millrace_user root, or a host with systemd"]
        return []

    def now(self):
        """Return file -> value of every limit; None for missing files."""
        return {str(path): _read(path) for path, _ in self._files(EVERYTHING)}

    def asked(self, requested):
        """Return file -> requested value."""
        return {str(path): value for path, value in self._files(requested)}

    def found(self):
        """Return the original state: existing groups with our name, and their values."""
        groups = {str(folder): folder.is_dir() for folder in self._folders(EVERYTHING)}
        return {"groups": groups, "values": self.now()}

    def is_set(self, requested):
        """Return whether all limits are in effect."""
        return all(_read(path) == value for path, value in self._files(requested))

    def set(self, requested):
        """Set the limits and read them back."""
        for folder in self._folders(requested):
            if self.version == 2:
                _write(folder.parent / "cgroup.subtree_control", "+cpu +memory")
            self.make(folder)
            os.chown(folder / "cgroup.procs", pwd.getpwnam(self._user).pw_uid, -1)
        for path, value in self._files(requested):
            _write(path, value)
            if _read(path) != value:
                raise LimitError(f"{path}: wrote {value}, read back {_read(path)}")

    def restore(self, found):
        """Restore the original state; processes in the group move to its parent."""
        for name, existed in found["groups"].items():
            folder = Path(name)
            if not folder.is_dir():
                continue
            if existed:
                for path, value in found["values"].items():
                    if Path(path).parent == folder and value is not None:
                        _write(Path(path), value)
                continue
            for process in (folder / "cgroup.procs").read_text(encoding="ascii").split():
                _write(folder.parent / "cgroup.procs", process)
            self.remove(folder)

    enter = ()
    """Command prefix to run a program within the limits; not used here, see `entrances`."""

    def entrances(self, requested):
        """Return the files to which an agent writes its process id."""
        return [str(folder / "cgroup.procs") for folder in self._folders(requested)]

    def make(self, folder):
        """Create a group; the kernel creates its files."""
        folder.mkdir(exist_ok=True)

    def remove(self, folder):
        """Remove a group with its files."""
        folder.rmdir()

    def _folders(self, requested):
        return sorted(
            {self._parents[kind] / GROUP for kind, asked in requested.items() if asked and kind in self._parents}
        )

    def _files(self, requested):
        if requested["cpu"] and "cpu" in self._parents:
            share, period = quota(requested["cpu"])
            folder = self._parents["cpu"] / GROUP
            if self.version == 2:
                yield folder / "cpu.max", f"{share} {period}"
            else:
                yield folder / "cpu.cfs_period_us", str(period)
                yield folder / "cpu.cfs_quota_us", str(share)
        if requested["memory"] and "memory" in self._parents:
            folder = self._parents["memory"] / GROUP
            yield (
                folder / ("memory.max" if self.version == 2 else "memory.limit_in_bytes"),
                str(requested["memory"] * MIB),
            )


class Slice:
    """Limits by systemd's slice of a user, which contains all sessions of the user.

    Args:
        root: replaces `/`.
        user: the user.
    """

    def __init__(self, root, user):
        self._root = root
        self._user = user

    def refusals(self, requested):
        """Return why requested limits are impossible on this host, one sentence per reason."""
        if not any(requested.values()):
            return []
        if not (self._root / "run/systemd/system").is_dir():
            return ["cpu and memory: systemd does not run this host; possible: millrace_service_manager none"]
        if self._user == "root":
            return ["cpu and memory: they would hold for every login of root; possible: another millrace_user"]
        if not self._puts_sessions_in():
            reason = "no session would be held by them, for PAM does not tell systemd of sessions"
            return [f"cpu and memory: {reason}; possible: install libpam-systemd"]
        return []

    def now(self):
        """Return file -> content; None when it is missing."""
        return {str(self._file()): _read(self._file())}

    def asked(self, requested):
        """Return file -> requested content."""
        return {str(self._file()): self._text(requested)} if any(requested.values()) else {}

    def found(self):
        """Return the original state."""
        missing = [str(folder) for folder in self._file().parents if not folder.is_dir()]
        return {"file": str(self._file()), "text": _read(self._file()), "missing": missing}

    def is_set(self, requested):
        """Return whether all limits are in effect, now and after the next boot."""
        return _read(self._file()) == self._text(requested)

    def set(self, requested):
        """Set the limits of current and future sessions.

        `systemctl set-property` is not used because it rounds to hundredths of a core.
        """
        self._file().parent.mkdir(parents=True, exist_ok=True)
        self._file().write_text(self._text(requested) + "\n", encoding="utf-8")
        _systemctl("daemon-reload")
        read = _systemctl("show", self._name(), "--property=DropInPaths", "--value").split()
        if str(self._file()) not in read:
            raise LimitError(f"{self._file()}: systemd has not read it, but {' '.join(read) or 'nothing'}")

    def restore(self, found):
        """Restore the original state."""
        path = Path(found["file"])
        if found["text"] is None:
            path.unlink(missing_ok=True)
            for folder in found["missing"]:
                with suppress(OSError):  # other settings may have been added since
                    Path(folder).rmdir()
        else:
            path.write_text(found["text"] + "\n", encoding="utf-8")
        _systemctl("daemon-reload")

    @property
    def enter(self):
        """Command prefix to run a program within the limits."""
        return ("systemd-run", "--quiet", "--pipe", "--wait", "--collect", f"--slice={self._name()}")

    def entrances(self, requested):
        """Return nothing: systemd assigns sessions itself."""
        return []

    def _puts_sessions_in(self):
        files = (self._root / "etc/pam.d" / name for name in ("sshd", "common-session"))
        return any("pam_systemd.so" in (_read(path) or "") for path in files)

    def _name(self):
        try:
            return f"user-{pwd.getpwnam(self._user).pw_uid}.slice"
        except KeyError:
            # A user who is still to be made has no limits yet.
            return f"user-{self._user}.slice"

    def _file(self):
        # Its name puts it after what an operator may have set by `systemctl set-property`.
        return self._root / "etc/systemd/system" / f"{self._name()}.d" / "90-millrace.conf"

    def _text(self, requested):
        lines = ["# Written by Millrace: what agents may use.", "[Slice]"]
        if requested["cpu"]:
            _, period_us = quota(requested["cpu"])
            lines.append(f"CPUQuota={percent(requested['cpu'])}")
            lines.append(f"CPUQuotaPeriodSec={period_us // 1000}ms")
        if requested["memory"]:
            lines.append(f"MemoryMax={requested['memory'] * MIB}")
        return "\n".join(lines)


def _read(path):
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None


def _write(path, text):
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as fault:
        raise LimitError(f"{path}: {text}: {fault.strerror}") from fault


def _systemctl(*arguments):
    done = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False, timeout=SYSTEMD_S)
    if done.returncode:
        raise LimitError(f"systemctl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def holder(root, user, service_manager):
    """Return the implementation of limits on this host."""
    return Slice(root, user) if service_manager == "systemd" else Groups(root, user)
