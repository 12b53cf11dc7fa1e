"""One guest for all tests of this folder; every test leaves its CPUs as it found them."""

from collections.abc import Iterator

import pytest
from guest import Guest, guest
from guest_cpus import GuestCpus
from guest_image import image


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
