"""Does every installed package still have all of its files? Status 1, and their names, when some do not.

An installer that was killed leaves packages that look installed and are not; `./run` asks this before it goes on in
an environment whose set-up was interrupted. Needs nothing but Python.
"""

import sys
from importlib.metadata import Distribution, distributions


def is_whole(package: Distribution) -> bool:
    """Whether all files that the package recorded are there, in their recorded size; without a record it is not."""
    for file in package.files or ():
        if file.suffix == ".pyc":
            continue
        try:
            size = file.locate().stat().st_size
        except OSError:
            return False
        if file.size is not None and file.size != size:
            return False
    return bool(package.files)


broken = sorted({str(package.name) for package in distributions() if not is_whole(package)})
if broken:
    sys.exit(f"incomplete: {', '.join(broken)}")
