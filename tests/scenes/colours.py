"""Status, the page and `drawbar explain` call the same objects bad, whatever state these are in."""

import datetime
import re

from drawbar.driver.api import fabrics, meta
from drawbar.driver.cli import objects
from drawbar.driver.cli.explain import diagnosis
from drawbar.driver.cli.explain import observed as explained
from drawbar.driver.cli.status import building, categories, fabric_entries, faults, narrowing, tree, views
from drawbar.driver.cli.ui import device_rows, model


def check(cluster, now=None):
    """Compare the three for each fabric, device and claim of a cluster."""
    now = now or datetime.datetime.now(datetime.UTC)
    shown = building.build(cluster)
    rows = {row.key: row for row in device_rows.from_tree(shown)}
    listed = [sentence for _, sentence, _ in views.list_troubles(shown, now)]
    states = {
        fabric.name: fabric
        for fabric in model.list_fabrics(
            (each for each in cluster.fabrics if each.spec.driver == cluster.driver),
            rows.values(),
            is_listed="fabrics" not in cluster.unlisted,
        )
    }
    for fabric in shown.fabrics:
        _check_fabric(cluster, fabric, states[fabric.name], now)
    for key, row in rows.items():
        _check_device(cluster, row, listed, states.get(row.fabric), now, key)
    for claim in shown.claims:
        _check_claim(cluster, claim, listed, now)


def _check_fabric(cluster, fabric, on_page, now):
    assert (on_page.state, on_page.message) == (fabric.state, fabric.message)
    item = next((each for each in cluster.fabrics if each.metadata.name == fabric.name), None)
    devices = [device for part in fabric.enclosures for device in part.devices if device.published]
    is_usable = not devices or any(map(_is_usable, devices))
    is_listed = "fabrics" not in cluster.unlisted
    is_good = is_listed and item is not None and _is_good(item) and is_usable
    assert (fabric.state == fabric_entries.CONNECTED) == is_good, fabric
    cause = _explain(cluster, "fabric", fabric.name, now).cause
    if not is_good:
        assert cause is not None, fabric
        assert cause.subject == f"Fabric {fabric.name}", (fabric, cause)
        assert (fabric.message or f"is {fabric.state}") in cause.message, (fabric, cause)
        assert cause.remedy, cause
        assert not re.search(r"\bNAME\b|[a-z]+\.md\b", cause.remedy), cause
        assert f"explain fabric/{fabric.name}" not in cause.remedy, cause
    elif all(_is_quiet(device) for part in fabric.enclosures for device in part.devices):
        assert cause is None, (fabric, cause)


def _check_device(cluster, row, listed, fabric, now, key):
    device = row.device
    is_sick = any(True for _ in faults.list_faults(device))
    overdue_at = meta.moment(device.overdue_at)
    is_late = overdue_at is not None and overdue_at < now and not device.release_blocker
    is_held = is_late or bool(device.refusal)
    is_bad = device.state == "Failed" or device.health == "Unhealthy" or is_sick or is_held
    name = f"device {device.pool}/{device.name} "
    assert any(sentence.startswith(name) for sentence in listed) == is_bad, (device, listed)
    assert (row.category == categories.FAILED) == (device.state == "Failed"), row
    blocked = [taint for taint in device.taints if taint.effect != "None"]
    assert (row.category == categories.BLOCKED) == (device.state == tree.FREE and bool(blocked)), row
    explanation = _explain(cluster, "device", f"{device.pool}/{device.name}", now)
    cause = explanation.cause
    red = "\n".join(finding.message for finding in (cause, *explanation.consequences) if finding is not None)
    if device.state == "Failed":
        assert (device.waits_for or "failed") in red, (device, red)
    if is_held:
        assert cause is not None, device
    if device.health == "Unhealthy":
        assert (device.health_message or "ill") in red, (device, red)
    for taint in blocked:
        assert taint.key in red, (device, red)
    if _is_quiet(device) and (fabric is None or fabric.state == fabric_entries.CONNECTED):
        assert cause is None, (key, cause)


def _check_claim(cluster, claim, listed, now):
    if claim.state != "Pending":
        return
    name = f"claim {claim.namespace}/{claim.name} "
    assert any(sentence.startswith(name) and " waits" in sentence for sentence in listed), (claim, listed)
    if "pods" not in cluster.unlisted:
        cause = _explain(cluster, "claim", claim.name, now, claim.namespace).cause
        assert (cause is not None) == (claim.severity == "warning"), (claim, cause)


def _explain(cluster, kind, name, now, namespace=""):
    whole = building.build(cluster)
    target = objects.Target(kind=kind, name=name)
    claims = (
        tuple(
            explained.Claim(metadata=claim.metadata)
            for claim in cluster.claims
            if (claim.metadata.namespace, claim.metadata.name) == (namespace, name)
        )
        if kind == "claim"
        else ()
    )
    return diagnosis.explain(
        explained.World(
            kind=kind,
            name=name,
            now=now,
            cluster=cluster,
            devices=() if claims else narrowing.narrow(whole, target).devices,
            claims=claims,
            choices={},
            nodes={},
            daemons={},
        )
    )


def _is_good(fabric):
    """Return whether each condition of a Fabric is good; a missing one is, except `Connected`."""
    status = {condition.type: condition.status for condition in fabric.status.conditions}
    return (
        not fabric.metadata.deletion_timestamp
        and status.get(fabrics.CONNECTED) == "True"
        and all(status.get(kind) != "True" for kind in (fabrics.DEGRADED, fabrics.FEATURES_DROPPED))
        and all(
            status.get(kind, "True") == "True"
            for kind in (fabrics.PUBLISHED, fabrics.WRITABLE, fabrics.HOSTS_MAPPED, fabrics.READY)
        )
    )


def _is_usable(device):
    is_blocked = device.state == tree.FREE and any(taint.effect != "None" for taint in device.taints)
    return device.state != "Failed" and not is_blocked


def _is_quiet(device):
    """Return whether a device has nothing to report: it is offered, settled and healthy, and has no taint."""
    return (
        (device.published or bool(device.composite))
        and device.state in tree.SETTLED
        and not device.waits_for
        and device.health != "Unhealthy"
        and all(taint.effect == "None" for taint in device.taints)
    )
