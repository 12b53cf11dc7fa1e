"""Ansible module: requested and measured rates and round trips of this host's links."""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.millrace_probe import ProbeError, is_near, nearest, rate_mbit, round_trip_ms

DOCUMENTATION = r"""
module: millrace_verify_links
short_description: Requested and measured rates and round trips of this host's links
description:
  - Every link is measured alone, against a peer at its other end. Nothing is changed.
options:
  links: {description: Result of the lookup millrace_links both ways., type: list, elements: dict, required: true}
  ports: {description: Ports of the peers of other hosts., type: dict, required: true}
  token: {description: First bytes of a connection., type: str, required: true}
  rate_tolerance: {description: Relative tolerance of the rate., type: float, required: true}
  trip_tolerance: {description: Relative tolerance of the round trip., type: float, required: true}
author: [The Millrace authors]
"""

EXAMPLES = r"""
- name: Measure the link to n2
  millrace_verify_links:
    links: [{to: n2, address: 10.0.0.2, rate_mbit: 100, delay_ms: 0, back_ms: 0}]
    ports: {n2: 40123}
    token: "{{ verify_token }}"
    rate_tolerance: 0.05
    trip_tolerance: 0.1
"""

RETURN = r"""
checks: {description: "to, what, asked, got, unit, ok, reason.", type: list, elements: dict, returned: always}
"""

BASE_TRIP_MS = 0.3
"""Maximum round trip without any delay; always tolerated."""


def measured(link, port, asked):
    """Yield the checks of one link."""
    where = (link["address"], port, asked["token"])
    trip = (link["delay_ms"] or 0) + (link["back_ms"] or 0)
    if link["rate_mbit"]:
        rate, tolerance = link["rate_mbit"], asked["rate_tolerance"]
        yield check(
            link, "link", rate, "Mbit/s", lambda: nearest(lambda: rate_mbit(*where), rate, tolerance), tolerance
        )
    if trip:
        tolerance = max(asked["trip_tolerance"], BASE_TRIP_MS / trip)
        yield check(link, "rtt", trip, "ms", lambda: nearest(lambda: round_trip_ms(*where), trip, tolerance), tolerance)


def check(link, what, asked, unit, measure, tolerance):
    """Return a check."""
    got, reason = None, ""
    try:
        got = measure()
    except ProbeError as fault:
        reason = str(fault)
    is_ok = got is not None and is_near(got, asked, tolerance)
    return {"to": link["to"], "what": what, "asked": asked, "got": got, "unit": unit, "ok": is_ok, "reason": reason}


def main():
    """Run as Ansible runs modules."""
    module = AnsibleModule(
        argument_spec={
            "links": {"type": "list", "elements": "dict", "required": True},
            "ports": {"type": "dict", "required": True},
            "token": {"type": "str", "required": True, "no_log": True},
            "rate_tolerance": {"type": "float", "required": True},
            "trip_tolerance": {"type": "float", "required": True},
        },
        supports_check_mode=True,
    )
    asked = module.params
    checks = []
    for link in asked["links"]:
        # Hosts outside --limit have no peer.
        if link["to"] in asked["ports"]:
            checks += measured(link, asked["ports"][link["to"]], asked)
    module.exit_json(changed=False, checks=checks)


if __name__ == "__main__":
    main()
