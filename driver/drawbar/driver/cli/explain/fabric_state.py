"""The findings on the fabric that is explained; pure. The state is that of `drawbar status`."""

from collections.abc import Iterator

from drawbar.driver.cli.doctor import findings
from drawbar.driver.cli.doctor.findings import Check, Finding
from drawbar.driver.cli.doctor.plans import fabrics as judging
from drawbar.driver.cli.explain import observed
from drawbar.driver.cli.status import fabric_entries

_STEPS = {
    fabric_entries.BLOCKED: "drawbar taint list --devices shows the taints; drawbar status --all shows the failures",
    "Pending": "does a controller run and lead? drawbar doctor",
    "Deleting": "it goes when its last device is back: drawbar status fabric/{name}",
    "Missing": "create the Fabric again, as it was",
}


def judge(world: observed.World) -> Iterator[Finding]:
    """Yield a finding for each bad condition; one on the state if no condition explains it, or if all is well."""
    fabric = next((each for each in world.cluster.fabrics if each.metadata.name == world.name), None)
    subject = f"Fabric {world.name}"
    troubles = tuple(judging.judge_all(fabric)) if fabric is not None else ()
    yield from (trouble.finding for trouble in troubles)
    shown = fabric_entries.describe_fabric(
        world.name, fabric, {"": world.devices}, is_listed=bool(world.cluster.fabrics)
    )
    if shown.state == fabric_entries.CONNECTED:
        yield findings.ok(
            Check.FABRICS_CONNECTED, subject, f"is connected, with {len(world.devices)} devices"
        )
    elif not troubles:
        about = f": {shown.message}" if shown.message else ""
        yield findings.warning(
            Check.FABRICS_DEGRADED,
            subject,
            f"is {shown.state}{about}",
            _STEPS.get(shown.state, "kubectl describe fabric {name}").format(name=world.name),
        )
