"""Power of an outlet of a power distribution unit: `snmpget`."""

from collections.abc import Sequence

from agents.power.programs import output_of, parser, repeat


def main(arguments: Sequence[str] | None = None) -> None:
    """Poll the meter and print its readings."""
    options = parser(
        "Print the power of an outlet. Arguments after -- are passed to snmpget: version, host, and the object.",
        "python3 -P -m agents.power.programs.snmp_outlet --domain outlet-3 --factor 0.1 -- "
        "-v2c -c public pdu1 1.3.6.1.4.1.318.1.1.26.9.4.3.1.7.3",
        "outlet",
    )
    options.add_argument("--factor", type=float, default=1.0, metavar="F", help="watts per unit of the object")
    options.add_argument("snmpget", nargs="+", help="arguments of snmpget")
    given = options.parse_args(arguments)

    def watts() -> float:
        output = output_of(["snmpget", "-Oqv", *given.snmpget]).strip()
        try:
            return float(output) * float(given.factor)
        except ValueError:
            raise ValueError(f"snmpget printed {output[:60]!r}, not a number") from None

    repeat(given, watts)


if __name__ == "__main__":
    main()
