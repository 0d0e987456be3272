"""The findings on the Fabric that is explained; pure. The first has the state that `drawbar status` shows."""

from collections.abc import Iterator, Sequence

import msgspec

from drawbar.driver.api import fabrics
from drawbar.driver.catalogue import reasons
from drawbar.driver.cli.doctor import findings
from drawbar.driver.cli.doctor.findings import Check, Finding
from drawbar.driver.cli.doctor.plans import fabrics as judging
from drawbar.driver.cli.explain import claim_findings, observed
from drawbar.driver.cli.status import categories, fabric_entries, tree

_STEPS = {
    fabric_entries.DELETING: "it goes when its last device is back: drawbar status fabric/{name} shows who has them",
    fabric_entries.PENDING: "drawbar doctor shows whether a controller runs and leads",
    fabric_entries.MISSING: "create the Fabric again, as it was",
    fabric_entries.UNKNOWN: "kubectl get fabric {name} shows why it cannot be read",
}
_OF_NO_CONDITION = frozenset(_STEPS)


def judge(world: observed.World) -> Iterator[Finding]:
    """Yield the finding on the Fabric's state, then one for each further bad condition."""
    fabric = next((each for each in world.cluster.fabrics if each.metadata.name == world.name), None)
    subject = f"Fabric {world.name}"
    shown = fabric_entries.describe_fabric(
        world.name, fabric, {"": world.devices}, is_listed="fabrics" not in world.cluster.unlisted
    )
    if shown.state == fabric_entries.CONNECTED:
        yield findings.make_ok(
            Check.FABRICS_CONNECTED, subject, f"is connected, with {len(world.devices)} devices"
        )
        return
    troubles = tuple(judging.judge_all(fabric)) if fabric is not None else ()
    if shown.state in _OF_NO_CONDITION or not troubles:
        about = f": {shown.message}" if shown.message else ""
        step = _STEPS.get(shown.state) or _unblock(world.devices)
        yield findings.make_warning(
            Check.FABRICS_DEGRADED, subject, f"is {shown.state}{about}", step.format(name=world.name)
        )
    for trouble in troubles:
        yield _with_step(world, fabric, trouble)


def _with_step(world: observed.World, fabric: fabrics.Fabric | None, trouble: judging.Trouble) -> Finding:
    """Return the finding on a bad condition. Its own step must not be the question that it answers."""
    found = trouble.finding
    match trouble.condition.reason:
        case reasons.NO_USABLE_DEVICE:
            taints = claim_findings.describe_taints(_find_blocked(world.devices))
            return msgspec.structs.replace(
                found, message=found.message + taints, remedy=_unblock(world.devices)
            )
        case reasons.NO_USABLE_NODE if fabric is not None and fabric.status.mapped_hosts:
            names = [host.node for host in fabric.status.mapped_hosts]
            return msgspec.structs.replace(
                found,
                message=f"{found.message}: {findings.join_names(names)}",
                remedy=f"drawbar explain node/{names[0]} shows why it is not used",
            )
        case reasons.NO_USABLE_NODE:
            return msgspec.structs.replace(found, remedy=f"drawbar fabric hosts {world.name} shows its nodes")
    return found


def _find_blocked(devices: Sequence[tree.Device]) -> tuple[tree.Device, ...]:
    return tuple(device for device in devices if categories.judge(device) == categories.BLOCKED)


def _unblock(devices: Sequence[tree.Device]) -> str:
    """Return the next step for a fabric without a usable device: lift a taint, else look at a failure."""
    failed = [device for device in devices if device.state == "Failed"]
    if step := claim_findings.lift(_find_blocked(devices)):
        return step
    if failed:
        return f"drawbar explain device/{failed[0].pool}/{failed[0].name} shows why it failed"
    return "drawbar status --all shows its devices"
