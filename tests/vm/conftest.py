"""One guest for all tests that need a kernel, and one lab for those that need Debian.

Every test of the guest restores its CPU settings.
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
    with guest(image()) as started:
        yield started


@pytest.fixture(scope="session")
def guest_cpus(machine: Guest) -> GuestCpus:
    return GuestCpus(machine)


@pytest.fixture
def cpus(guest_cpus: GuestCpus) -> Iterator[GuestCpus]:
    found = guest_cpus.settings()
    yield guest_cpus
    assert guest_cpus.settings() == found


@pytest.fixture(scope="module", name="lab")
def debian_lab() -> Iterator[Lab]:
    reason = debian_image.unsupported_reason()
    if reason:
        pytest.skip(reason)
    with lab(debian_image.debian_image()) as started:
        yield started
