"""Clock offset and its error bound, from the output of chrony."""

from ansible_modules import module_utils

clock = module_utils("millrace_clock")

TRACKING = (
    "C0A80101,192.168.1.1,3,1763765000.123456789,-0.000123456,0.000045,0.000120,-12.345,0.001,0.012,"
    "0.004000,0.000500,64.2,Normal\n"
)


def test_the_bound_is_the_offset_the_dispersion_and_half_the_delay():
    found = clock.from_tracking(TRACKING)
    assert found["source"] == "chrony"
    assert found["offset_s"] == -0.000123456
    assert found["bound_s"] == 0.000123456 + 0.0005 + 0.002


def test_an_unsynchronised_clock_has_no_offset():
    found = clock.from_tracking("00000000,,0,0.000000000,0.0,0.0,0.0,0.0,0.0,0.0,1.0,1.0,0.0,Not synchronised\n")
    assert found["offset_s"] is None
    assert "none of its servers has answered" in found["reason"]


def test_an_error_message_of_chrony_gives_no_offset():
    assert clock.from_tracking("506 Cannot talk to daemon\n")["offset_s"] is None


def test_nodes_of_one_machine_share_its_clock():
    found = clock.measured(shared=True)
    assert (found["source"], found["offset_s"]) == ("shared", 0.0)
