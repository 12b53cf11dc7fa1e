"""Power of a server as measured by its management controller: `ipmitool dcmi power reading`."""

import re
from collections.abc import Sequence

from agents.power.programs import output_of, parser, repeat

_READING = re.compile(r"Instantaneous power reading:\s*(\d+)\s*Watts")
_STATE = re.compile(r"Power reading state is:\s*(\w+)")


def watts_in(report: str) -> float:
    """Return the instantaneous reading in a report.

    Raises:
        ValueError: there is none, or it is not activated.
    """
    state, reading = _STATE.search(report), _READING.search(report)
    if state and state.group(1) != "activated":
        raise ValueError(f"the controller's power reading is {state.group(1)}")
    if reading is None:
        raise ValueError("the controller reports no instantaneous power")
    return float(reading.group(1))


def main(arguments: Sequence[str] | None = None) -> None:
    """Poll the meter and print its readings."""
    options = parser(
        "Print the power measured by a server's management controller. Arguments after -- are passed to ipmitool.",
        "python3 -P -m agents.power.programs.ipmi_dcmi --domain board -- -H bmc1 -U reader -f password-file -I lanplus",
        "board",
    )
    options.add_argument("ipmitool", nargs="*", help="options of ipmitool: host, user, password file, interface")
    given = options.parse_args(arguments)
    repeat(given, lambda: watts_in(output_of(["ipmitool", *given.ipmitool, "dcmi", "power", "reading"])))


if __name__ == "__main__":
    main()
