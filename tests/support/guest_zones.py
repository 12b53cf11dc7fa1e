"""A kernel module for a guest: zones of the powercap framework, which no stock module gives an emulated processor.

Their counters follow the guest's own clock, so that what a meter reads of them is known beforehand.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from guest_image import RECIPE, Image
from guest_packages import run_told

WATTS = {"package-0": 10, "dram/package-0": 2}
"""What the zones count, as `millrace_zones.c` has it."""


def why_not() -> str | None:
    """Why no kernel module can be built here, or None."""
    missing = [program for program in ("gcc", "make") if shutil.which(program) is None]
    return f"no {' and no '.join(missing)} to build a kernel module with" if missing else None


def zones_module(image: Image) -> Path:
    """The module for the image's kernel, built beside it from the headers of the same version."""
    built = image.folder / "millrace_zones.ko"
    if not built.is_file():
        with tempfile.TemporaryDirectory(prefix="building-", dir=image.folder) as folder:
            _build(Path(folder), image.release).rename(built)
    return built


def _build(folder: Path, release: str) -> Path:
    headers = f"linux-headers-{release}"
    needed = run_told(["apt-cache", "depends", "--no-recommends", "--no-suggests", headers]).split()
    packages = [headers, *(name for name in needed if name.startswith(("linux-headers-", "linux-kbuild-")))]
    command = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *sorted(set(packages))]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=600)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(folder / "root")], check=True, timeout=300)
    sources = folder / "zones"
    shutil.copytree(RECIPE / "zones", sources)
    (makefile,) = (folder / "root" / "usr" / "src").glob("linux-headers-*-common/Makefile")
    # The headers' own Makefile looks for this one where it would be installed.
    tree = folder / "root" / "usr" / "src" / headers
    run_told(["make", "-C", str(tree), "-f", str(makefile), "CC=gcc", f"M={sources}", "modules"])
    return sources / "millrace_zones.ko"
