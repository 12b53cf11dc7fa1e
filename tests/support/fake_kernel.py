"""Fake kernel behind the CPU files of a tree: it refuses, clamps, rounds and ignores values as drivers do.

All of its state is in the tree, so that another process finds the machine as a killed process left it.
"""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trees.processors import CPU, write

from agents.host_files import HostFiles


class FakeKernel(HostFiles):
    """Files of a tree that `trees.processors` built.

    Args:
        root: the tree.
        before_write: called before every write with its number (from 0) and path; the write raises what it raises.
    """

    def __init__(self, root: Path, before_write: Callable[[int, str], None] = lambda number, path: None) -> None:
        super().__init__(root)
        self.kernel: dict[str, Any] = json.loads((root / "kernel.json").read_text())
        self.before_write = before_write
        self.writes: list[tuple[str, str]] = []
        self.attempts = 0
        self._on: list[int] | None = None

    def read(self, path: str) -> str:
        folder = path.split("/")[-2]
        if folder in self.kernel["policies"] and not self._working(folder):
            raise _fault(errno.EBUSY if self.exists(path) else errno.ENOENT, path)
        return super().read(path)

    def write(self, path: str, text: str) -> None:
        self.attempts += 1
        self.before_write(self.attempts - 1, path)
        self.writes.append((path, text))
        if not self.exists(path):
            raise _fault(errno.ENOENT, path)
        if path in self._ignored():
            return
        folder, file = path.split("/")[-2:]
        if file == "online":
            self._switch(int(folder[3:]), text, path)
        elif file == "control":
            self._set_smt(text, path)
        elif file == "status":
            self._set_mode(text, path)
        elif file in {"boost", "no_turbo"}:
            self._set_turbo(file, text, path)
        elif not self._working(folder):
            raise _fault(errno.EBUSY, path)
        elif file == "scaling_governor":
            self._set_governor(folder, text, path)
        elif file in {"scaling_min_freq", "scaling_max_freq"}:
            self._set_limit(folder, file, text, path)
            self._hold(folder)
        elif file == "scaling_setspeed":
            self._set_speed(folder, text, path)
        elif file == "energy_performance_preference":
            self._set_epp(folder, text, path)
        else:
            raise _fault(errno.EACCES, path)

    def ignore(self, *paths: str) -> None:
        """From now on, accept writes of these files without effect, in every process."""
        (self.root / "ignored").write_text("\n".join(paths))

    def boot(self) -> None:
        """Create the files that depend on which CPUs are online: topology, masks and policies."""
        for name in self.kernel["policies"]:
            # Kernels that keep policies created them while their CPUs were online.
            if self._working(name) or self.kernel["keeps_policies"]:
                self._make_policy(name)
        self._describe()

    def _ignored(self) -> list[str]:
        ignored = self.root / "ignored"
        return ignored.read_text().splitlines() if ignored.exists() else []

    # CPUs

    def _online(self) -> list[int]:
        if self._on is None:
            cpus = sorted(cpu for _, core in self.kernel["cores"] for cpu in core)
            self._on = [c for c in cpus if c in self.kernel["fixed"] or self._text(f"cpu{c}/online") == "1"]
        return self._on

    def _working(self, policy: str) -> bool:
        return bool(set(self.kernel["policies"].get(policy, ())) & set(self._online()))

    def _switch(self, cpu: int, text: str, path: str) -> None:
        if text not in {"0", "1"}:
            raise _fault(errno.EINVAL, path)
        primary = {min(core) for _, core in self.kernel["cores"]}
        if text == "1" and self._text("smt/control") in {"off", "forceoff"} and cpu not in primary:
            raise _fault(errno.EPERM, path)
        if text == "0" and self._online() == [cpu]:
            raise _fault(errno.EBUSY, path)
        self._turn(cpu, text)

    def _turn(self, cpu: int, text: str) -> None:
        worked = {name for name in self.kernel["policies"] if self._working(name)}
        self._put(f"cpu{cpu}/online", text)
        self._on = None
        for name in self.kernel["policies"]:
            if self._working(name) and not (self.root / CPU / "cpufreq" / name).exists():
                self._make_policy(name)
            elif self._working(name) and name not in worked:
                self._begin(name)
            elif name in worked and not self._working(name) and not self.kernel["keeps_policies"]:
                shutil.rmtree(self.root / CPU / "cpufreq" / name)
        self._describe()

    def _describe(self) -> None:
        online = self._online()
        self._put("online", ",".join(map(str, online)))
        for number, (socket, core) in enumerate(self.kernel["cores"]):
            for cpu in core:
                if cpu not in online:
                    shutil.rmtree(self.root / CPU / f"cpu{cpu}/topology", ignore_errors=True)
                    continue
                self._put(f"cpu{cpu}/topology/physical_package_id", str(socket))
                self._put(f"cpu{cpu}/topology/core_id", str(number))
                self._put(f"cpu{cpu}/topology/core_cpus_list", ",".join(str(c) for c in core if c in online))
        for name, cpus in self.kernel["policies"].items():
            if (self.root / CPU / "cpufreq" / name).exists():
                self._put(f"cpufreq/{name}/affected_cpus", " ".join(str(c) for c in cpus if c in online))

    def _set_smt(self, text: str, path: str) -> None:
        if self._text("smt/control") in {"notsupported", "notimplemented"}:
            raise _fault(errno.ENODEV, path)
        if text not in {"on", "off", "forceoff"}:
            raise _fault(errno.EINVAL, path)
        self._put("smt/control", text)
        for _, core in self.kernel["cores"]:
            for cpu in sorted(core)[1:]:
                self._turn(cpu, "1" if text == "on" else "0")

    # policies

    def _make_policy(self, name: str) -> None:
        status = self.kernel["status"]
        mode = self._text(f"{status}/status") if status else ""
        cpus = self.kernel["policies"][name]
        files = {**self.kernel["modes"][mode], "related_cpus": " ".join(map(str, cpus))}
        low, high = self.kernel["clocks"].get(str(cpus[0]), (None, None))
        if high is not None:
            files |= {"cpuinfo_min_freq": str(low), "scaling_min_freq": str(low)}
            files |= {"cpuinfo_max_freq": str(high), "scaling_max_freq": str(high)}
        if self._text("cpufreq/boost") == "0" and "scaling_boost_frequencies" in files:
            files |= {"cpuinfo_max_freq": self._base(files), "scaling_max_freq": self._base(files)}
        shutil.rmtree(self.root / CPU / "cpufreq" / name, ignore_errors=True)
        for file, text in files.items():
            self._put(f"cpufreq/{name}/{file}", text)

    def _set_mode(self, text: str, path: str) -> None:
        if text not in self.kernel["modes"]:
            raise _fault(errno.EINVAL, path)
        if self._text(f"{self.kernel['status']}/status") == text:
            return
        self._put(f"{self.kernel['status']}/status", text)
        for name in self.kernel["policies"]:
            shutil.rmtree(self.root / CPU / "cpufreq" / name, ignore_errors=True)
        self.boot()

    def _set_turbo(self, file: str, text: str, path: str) -> None:
        if text not in {"0", "1"}:
            raise _fault(errno.EINVAL, path)
        self._put("cpufreq/boost" if file == "boost" else "intel_pstate/no_turbo", text)
        for name in self.kernel["policies"]:
            # acpi-cpufreq moves the limits of all policies with its boost.
            if self._working(name) and (boosted := self._text(f"cpufreq/{name}/scaling_boost_frequencies")):
                files = {"scaling_available_frequencies": self._text(f"cpufreq/{name}/scaling_available_frequencies")}
                top = boosted if text == "1" else self._base(files)
                self._put(f"cpufreq/{name}/cpuinfo_max_freq", top)
                self._put(f"cpufreq/{name}/scaling_max_freq", top)
                low = min(int(self._text(f"cpufreq/{name}/scaling_min_freq")), int(top))
                self._put(f"cpufreq/{name}/scaling_min_freq", str(low))

    def _set_governor(self, name: str, text: str, path: str) -> None:
        if text not in self._text(f"cpufreq/{name}/scaling_available_governors").split():
            raise _fault(errno.EINVAL, path)
        earlier = self._text(f"cpufreq/{name}/scaling_governor")
        self._put(f"cpufreq/{name}/scaling_governor", text)
        if earlier != text:
            self._begin(name)
        if not self._locks_epp(name) or earlier == text:
            return
        kept, epp = self.root / f"kept-{name}", f"cpufreq/{name}/energy_performance_preference"
        if text == "performance":
            kept.write_text(self._text(epp))
            self._put(epp, "performance")
        elif kept.exists():
            self._put(epp, kept.read_text())

    def _set_speed(self, name: str, text: str, path: str) -> None:
        if self._text(f"cpufreq/{name}/scaling_governor") != "userspace" or not text.isdigit():
            raise _fault(errno.EINVAL, path)
        self._held(name).write_text(text)
        self._hold(name)

    def _begin(self, name: str) -> None:
        """Start the governor userspace at the current clock; the clock that it held before is forgotten."""
        if (self.root / CPU / f"cpufreq/{name}/scaling_setspeed").exists():
            self._held(name).write_text(self._text(f"cpufreq/{name}/scaling_max_freq"))
            self._put(f"cpufreq/{name}/scaling_setspeed", "<unsupported>")
            self._hold(name)

    def _hold(self, name: str) -> None:
        """Set the clock of the governor userspace within the limits, and show the result."""
        if self._text(f"cpufreq/{name}/scaling_governor") == "userspace" and self._held(name).exists():
            low, high = (int(self._text(f"cpufreq/{name}/scaling_{end}_freq")) for end in ("min", "max"))
            speed = min(max(int(self._held(name).read_text()), low), high)
            self._put(f"cpufreq/{name}/scaling_setspeed", str(speed))

    def _held(self, name: str) -> Path:
        return self.root / f"held-{name}"

    def _set_epp(self, name: str, text: str, path: str) -> None:
        choices = self._text(f"cpufreq/{name}/energy_performance_available_preferences").split()
        if text not in choices and not (text.isdigit() and int(text) <= 255):
            raise _fault(errno.EINVAL, path)
        if self._locks_epp(name) and self._text(f"cpufreq/{name}/scaling_governor") == "performance":
            if text != "performance":
                raise _fault(errno.EBUSY, path)
            return
        self._put(f"cpufreq/{name}/energy_performance_preference", text)

    def _locks_epp(self, name: str) -> bool:
        return self._text(f"cpufreq/{name}/scaling_driver") in {"intel_pstate", "amd-pstate-epp"}

    def _set_limit(self, name: str, file: str, text: str, path: str) -> None:
        if not text.isdigit():
            raise _fault(errno.EINVAL, path)
        lowest, highest, low, high = (
            int(self._text(f"cpufreq/{name}/{each}"))
            for each in ("cpuinfo_min_freq", "cpuinfo_max_freq", "scaling_min_freq", "scaling_max_freq")
        )
        khz = min(max(int(text), lowest), highest)
        if (file == "scaling_min_freq" and khz > high) or (file == "scaling_max_freq" and khz < low):
            raise _fault(errno.EINVAL, path)
        tables = ("scaling_available_frequencies", "scaling_boost_frequencies")
        table = [int(word) for each in tables for word in self._text(f"cpufreq/{name}/{each}").split()]
        if table and file == "scaling_max_freq":
            khz = max(step for step in table if step <= khz)
        elif table:
            khz = min(step for step in table if step >= khz)
        else:
            khz = min(max(khz // self.kernel["grain"] * self.kernel["grain"], lowest), highest)
        self._put(f"cpufreq/{name}/{file}", str(khz))

    def _base(self, files: dict[str, str]) -> str:
        return str(max(map(int, files["scaling_available_frequencies"].split())))

    def _text(self, path: str) -> str:
        try:
            return (self.root / CPU / path).read_text().strip()
        except OSError:
            return ""

    def _put(self, path: str, text: str) -> None:
        write(self.root, f"{CPU}/{path}", text)


def readable_files(root: Path) -> dict[str, str]:
    """Return `all_files` without policies that a kernel keeps but hides while their CPUs are offline."""
    kernel = FakeKernel(root)
    dark = [f"/{name}/" for name in kernel.kernel["policies"] if not kernel._working(name)]
    return {path: text for path, text in all_files(root).items() if not any(name in path for name in dark)}


def all_files(root: Path) -> dict[str, str]:
    """Return all files below /sys of a tree, by path, to compare with an earlier state."""
    return {
        str(path.relative_to(root)): path.read_text().strip()
        for path in sorted((root / "sys").rglob("*"))
        if path.is_file()
    }


def _fault(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
