"""The `parameters` of a Fabric with the adapter `redfish`; pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import yarl

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import polling, profiles

POLL_SECONDS = 30.0
TASK_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The parameters with their defaults.

    Attributes:
        profile: a name of `profiles.PROFILES`; empty to follow the service root.
        fabrics: ids of the service's fabrics to use; empty for all.
        ports: the most devices of one host port; 0 for the profile's value.
        zone_body: the place of the endpoints in the body of a changed zone; None for the profile's.
        uses_etags: whether changes depend on the ETag of their resource.
        requests_at_once: the most requests at once.
        poll_seconds: the time between two readings of a service without events.
        task_seconds: the longest time of an attach or detach.
    """

    profile: str = ""
    fabrics: frozenset[str] = frozenset()
    ports: int = 0
    zone_body: profiles.ZoneBody | None = None
    uses_etags: bool = True
    requests_at_once: int = polling.AT_ONCE
    poll_seconds: float = POLL_SECONDS
    task_seconds: float = TASK_SECONDS

    def apply(self, profile: profiles.Profile) -> profiles.Profile:
        """Return the profile with the values of these parameters in place of its own."""
        return replace(
            profile,
            ports=self.ports or profile.ports,
            zone_body=self.zone_body or profile.zone_body,
            # An administrator who sets the form of a body has tried it.
            unverified="" if self.zone_body else profile.unverified,
        )


# The parameters for people and for programs (JSON Schema).
SCHEMA: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "profile": {
            "description": "The kind of service (default: as the service root shows)",
            "type": "string",
            "enum": sorted(profiles.PROFILES),
        },
        "fabrics": {
            "description": "Ids of the service's fabrics to use, with commas (default: all PCIe and CXL fabrics)",
            "type": "string",
            "pattern": r"^[^,\s]+(,[^,\s]+)*$",
        },
        "ports": {
            "description": "The number of devices on one host port (default: the profile's)",
            "type": "string",
            "pattern": "^[1-9][0-9]{0,2}$",
        },
        "zoneBody": {
            "description": "The endpoints of a changed zone: links for Links.Endpoints (default), endpoints for Endpoints (Intel's Rack Scale Design)",
            "type": "string",
            "enum": sorted(profiles.ZoneBody),
        },
        "etags": {
            "description": "Send a resource's ETag with changes (default: yes); no if the service refuses its own (STALE_ETAG): simultaneous changes by others may be lost",
            "type": "string",
            "enum": ["no", "yes"],
        },
        "requestsAtOnce": {
            "description": f"The most requests at once, up to {polling.AT_ONCE_MAX} (default: {polling.AT_ONCE})",
            "type": "string",
            "pattern": "^([1-9]|1[0-6])$",
        },
        "pollSeconds": {
            "description": f"The seconds between two readings of a service without events (default: {POLL_SECONDS:.0f})",
            "type": "string",
            "pattern": "^[1-9][0-9]{0,3}$",
        },
        "taskSeconds": {
            "description": f"The longest time of an attach or detach in seconds (default: {TASK_SECONDS:.0f})",
            "type": "string",
            "pattern": "^[1-9][0-9]{0,3}$",
        },
    }
)


def parse(config: contract.AdapterConfig) -> Parameters:
    """Return the parameters of a configuration.

    Raises:
        InvalidConfiguration: with all problems.
    """
    problems = _endpoint_problems(config)
    if not config.timeout_seconds > 0:
        problems.append(f"the timeout of {config.timeout_seconds} s is not positive")
    remaining = dict(config.parameters)
    profile = remaining.pop("profile", "")
    if profile and profile not in profiles.PROFILES:
        problems.append(
            f'the profile "{profile}" is unknown; there are {", ".join(sorted(profiles.PROFILES))}'
        )
    zone_body = remaining.pop("zoneBody", "")
    if zone_body and zone_body not in list(profiles.ZoneBody):
        problems.append(
            f'the parameter "zoneBody" is "{zone_body}"; give {" or ".join(sorted(profiles.ZoneBody))}'
        )
        zone_body = ""
    etags = remaining.pop("etags", "") or "yes"
    if etags not in ("no", "yes"):
        problems.append(f'the parameter "etags" is "{etags}"; give yes or no')
    listed = remaining.pop("fabrics", "")
    fabrics = frozenset(name.strip() for name in listed.split(",") if name.strip())
    if listed and not fabrics:
        problems.append(
            'the parameter "fabrics" names none; give ids with commas between them, or leave it out'
        )

    def number(name: str, without: float, most: int) -> float:
        content = remaining.pop(name, "")
        if not content:
            return without
        if content.isascii() and content.isdigit() and 1 <= int(content[:9]) <= most:
            return float(content)
        problems.append(f'the parameter "{name}" is "{content}"; give a whole number from 1 to {most}')
        return without

    parameters = Parameters(
        profile=profile,
        fabrics=fabrics,
        ports=int(number("ports", 0, 999)),
        uses_etags=etags == "yes",
        zone_body=profiles.ZoneBody(zone_body) if zone_body else None,
        requests_at_once=int(number("requestsAtOnce", polling.AT_ONCE, polling.AT_ONCE_MAX)),
        poll_seconds=number("pollSeconds", POLL_SECONDS, 9999),
        task_seconds=number("taskSeconds", TASK_SECONDS, 9999),
    )
    problems += [
        f'the parameter "{name}" is unknown; the redfish adapter has {", ".join(sorted(SCHEMA))}'
        for name in sorted(remaining)
    ]
    if problems:
        raise errors.InvalidConfiguration(problems)
    return parameters


def _endpoint_problems(config: contract.AdapterConfig) -> list[str]:
    shape = "give https://host[:port]"
    credentials = config.credentials
    if "@" in config.endpoint:
        # Not quoted: the text before the @ may be a password.
        return ["the endpoint carries a user name or password; put these into the Fabric's Secret"]
    try:
        url = yarl.URL(config.endpoint)
        port = url.port
    except ValueError:
        return [f'the endpoint "{config.endpoint}" is not a URL; {shape}']
    problems = []
    if url.scheme not in {"https", "http"} or not url.host or port is None:
        problems.append(f'the endpoint "{config.endpoint}" is not an address of a Redfish service; {shape}')
    if url.path.rstrip("/") not in {"", "/redfish", "/redfish/v1"} or url.query_string or url.fragment:
        problems.append(f'the endpoint "{config.endpoint}" has a path; {shape}')
    is_secret = bool(credentials.username or credentials.token)
    if url.scheme == "http" and is_secret and url.host not in {"127.0.0.1", "::1", "localhost"}:
        problems.append("the password would be sent in the clear; give an endpoint with https")
    if credentials.username and credentials.token:
        problems.append("there is a user name and a token; give one of the two")
    return problems


def schema() -> Mapping[str, object]:
    """Return the parameters as a JSON Schema."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Parameters of a Fabric with the adapter redfish",
        "type": "object",
        "properties": {name: dict(described) for name, described in SCHEMA.items()},
        "additionalProperties": False,
    }
