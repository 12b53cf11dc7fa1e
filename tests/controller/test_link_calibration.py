"""Calibration of the links of an emulated cluster, several at the same time."""

from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.emulation.calibration import TOGETHER_MBIT, calibrate_links, measurable_together
from controller.emulation.network import EmulatedNetwork, NetworkPlan, new_prefix
from controller.emulation.unprivileged import NoLedger
from inventory.emulation import LinkSettings

NODES = ("n1", "n2", "n3", "n4")
RATES = st.sampled_from([1.0, 10.0, 100.0, 499.0, 1000.0])


@given(st.dictionaries(st.sampled_from(list(permutations("abcdefg", 2))), RATES))
def test_links_that_are_measured_together_share_no_node_and_do_not_overload_the_host(
    rates: dict[tuple[str, str], float],
) -> None:
    links = [LinkSettings(*ends, rate) for ends, rate in rates.items()]
    sets = list(measurable_together(links))
    assert sorted(link.sender + link.receiver for each in sets for link in each) == sorted(map("".join, rates))
    for each in sets:
        ends = [end for link in each for end in (link.sender, link.receiver)]
        assert len(ends) == len(set(ends))
        assert len(each) == 1 or sum(link.rate_mbit or 0.0 for link in each) <= TOGETHER_MBIT


def test_a_mesh_of_equal_links_takes_twice_as_many_sets_as_a_node_has_links() -> None:
    mesh = [LinkSettings(*ends, 100) for ends in permutations("abcdefgh", 2)]
    assert 14 <= len(list(measurable_together(mesh))) <= 2 * 14


@pytest.mark.root
@pytest.mark.timeout(120)
def test_links_that_are_measured_together_have_the_requested_rates(tmp_path: Path) -> None:
    requested = {ends: 50.0 + 10 * at for at, ends in enumerate(permutations(NODES, 2))}
    plan = NetworkPlan(new_prefix(), NODES, tuple(LinkSettings(*ends, rate) for ends, rate in requested.items()))
    with EmulatedNetwork(plan, NoLedger(), tmp_path / "relay.log"):
        found = list(calibrate_links(plan))
    assert {(row.node, row.to): row.asked for row in found} == requested
    assert [(row.node, row.to) for row in found] == list(requested)
    # A busy host may be slower than the limit, never faster.
    assert all(row.got < 1.05 * row.asked for row in found), found
    if not all(row.got > 0.95 * row.asked for row in found):
        pytest.skip(f"host busy: {found}")
