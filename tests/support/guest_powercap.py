"""Kernel module for a guest with powercap zones, which no stock module provides on emulated processors.

Their counters follow the guest's clock; measured energy is therefore known beforehand.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from guest_image import RECIPE, Image
from guest_packages import run_checked

WATTS = {"package-0": 10, "dram/package-0": 2}
"""Power of the zones, as in `millrace_zones.c`."""


def unsupported_reason() -> str | None:
    """Return why no kernel module can be built here, or None."""
    missing = [program for program in ("gcc", "make") if shutil.which(program) is None]
    return f"no {' and no '.join(missing)} to build a kernel module with" if missing else None


def zones_module(image: Image) -> Path:
    """Return the module for the image's kernel, built beside it from headers of the same version."""
    built = image.folder / "millrace_zones.ko"
    if not built.is_file():
        with tempfile.TemporaryDirectory(prefix="building-", dir=image.folder) as folder:
            _build(Path(folder), image.release).rename(built)
    return built


def _build(folder: Path, release: str) -> Path:
    headers = f"linux-headers-{release}"
    needed = run_checked(["apt-cache", "depends", "--no-recommends", "--no-suggests", headers]).split()
    packages = [headers, *(name for name in needed if name.startswith(("linux-headers-", "linux-kbuild-")))]
    command = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *sorted(set(packages))]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=600)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(folder / "root")], check=True, timeout=300)
    sources = folder / "zones"
    shutil.copytree(RECIPE / "zones", sources)
    (makefile,) = (folder / "root" / "usr" / "src").glob("linux-headers-*-common/Makefile")
    # The headers' Makefile looks for this one where it would be installed.
    tree = folder / "root" / "usr" / "src" / headers
    run_checked(["make", "-C", str(tree), "-f", str(makefile), "CC=gcc", f"M={sources}", "modules"])
    return sources / "millrace_zones.ko"
