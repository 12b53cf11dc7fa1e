"""One guest for all tests that need a kernel, and one lab for those that need Debian.

Every test of the guest leaves its CPUs as it found them.
"""

from collections.abc import Iterator

import debian_image
import pytest
from guest import Guest, guest
from guest_cpus import GuestCpus
from guest_image import image
from guest_lab import Lab, lab


@pytest.fixture(scope="session")
def machine() -> Iterator[Guest]:
    with guest(image()) as made:
        yield made


@pytest.fixture(scope="session")
def program(machine: Guest) -> GuestCpus:
    return GuestCpus(machine)


@pytest.fixture
def cpus(program: GuestCpus) -> Iterator[GuestCpus]:
    found = program.settings()
    yield program
    assert program.settings() == found


@pytest.fixture(scope="module", name="lab")
def two_debians() -> Iterator[Lab]:
    reason = debian_image.why_not()
    if reason:
        pytest.skip(reason)
    with lab(debian_image.debian_image()) as made:
        yield made
