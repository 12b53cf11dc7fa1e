"""A wish is read from JSON with messages that name key, value and what was expected."""

from typing import Any

import pytest

from agents.cpu.request import CpuRequest
from inventory.errors import InputError


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"governer": "x"}, "wish: unknown setting 'governer'; did you mean 'governor'?"),
        ({"cores": 0}, "wish: cores: got 0, expected a whole number from 1 on"),
        ({"cores": 1.5}, "cores: got 1.5"),
        ({"cores": True}, "cores: got True"),
        ({"max_ghz": 2_400_000}, "expected a clock in GHz, above 0 and below 100"),
        ({"min_ghz": 3, "max_ghz": 2}, "min_ghz: got 3, expected at most max_ghz, 2"),
        ({"turbo": "off"}, "turbo: got 'off', expected true or false"),
        ({"governor": "power save"}, "governor: got 'power save'"),
        ({"epp": 256}, "expected a preference's name, or 0 to 255"),
    ],
)
def test_a_wish_that_cannot_be_read_is_the_users_error(document: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as fault:
        CpuRequest.from_document(document)
    assert told in str(fault.value)


def test_a_wish_survives_json() -> None:
    document = {"cores": 2, "governor": "performance", "max_ghz": 2.4, "turbo": False, "epp": "128"}
    assert CpuRequest.from_document({**document, "smt": None}).to_document() == document
    assert CpuRequest.from_document({"epp": 128}).epp == "128"
