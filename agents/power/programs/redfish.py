"""Power of a server over Redfish: `PowerControl` of a chassis' `Power`, or `PowerWatts` of its `EnvironmentMetrics`."""

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents.power.programs import TIMEOUT_S, parser, repeat


def resource_watts(resource: Any) -> float:
    """Return the power in a `Power` or an `EnvironmentMetrics` resource.

    Raises:
        ValueError: the resource contains no power.
    """
    try:
        if "PowerControl" in resource:
            return float(resource["PowerControl"][0]["PowerConsumedWatts"])
        return float(resource["PowerWatts"]["Reading"])
    except (KeyError, IndexError, TypeError) as fault:
        raise ValueError(f"the resource contains no power: {type(fault).__name__} {fault}") from None


def fetch(request: urllib.request.Request, context: ssl.SSLContext) -> Any:
    """Fetch a resource.

    Raises:
        OSError: it cannot be fetched.
        ValueError: it is not JSON.
    """
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as answer:  # noqa: S310 - see `main`
            return json.loads(answer.read())
    except urllib.error.HTTPError as fault:
        raise OSError(f"{request.full_url} answers {fault.code} {fault.reason}") from None
    except urllib.error.URLError as fault:
        raise OSError(f"{request.full_url} cannot be reached: {fault.reason}") from None


def main(arguments: Sequence[str] | None = None) -> None:
    """Poll the meter and print its readings."""
    options = parser(
        "Print the power that a server reports over Redfish.",
        "python3 -P -m agents.power.programs.redfish --user reader --password-file secret "
        "https://bmc1/redfish/v1/Chassis/1/Power",
        "board",
    )
    options.add_argument("url", help="URL of the Power or EnvironmentMetrics resource of a chassis")
    options.add_argument("--user", help="user name; without it, requests are not authenticated")
    options.add_argument("--password-file", type=Path, metavar="FILE", help="file that contains the user's password")
    options.add_argument("--ca", type=Path, metavar="FILE", help="certificates to trust besides the system's")
    given = options.parse_args(arguments)
    if not given.url.startswith(("https://", "http://")):
        options.error(f"{given.url!r} is not a URL that begins with https:// or http://")
    request = urllib.request.Request(given.url, headers={"Accept": "application/json"})  # noqa: S310 - checked above
    if given.user:
        password = given.password_file.read_text().strip() if given.password_file else ""
        credentials = base64.b64encode(f"{given.user}:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {credentials}")
    context = ssl.create_default_context()
    if given.ca:
        context.load_verify_locations(given.ca)
    repeat(given, lambda: resource_watts(fetch(request, context)))


if __name__ == "__main__":
    main()
