"""What a Fabric's status says, decided purely."""

import datetime
from collections.abc import Collection
from typing import Any

import msgspec

from drawbar.driver.api import fabrics, meta
from drawbar.driver.controller.fabrics import session

NO_FIELDS_LOST = "the API server keeps every field of the published devices"


def status(
    fabric: fabrics.Fabric,
    view: session.Session,
    *,
    dropped_fields: Collection[str],
    attached: int,
    now: datetime.datetime,
) -> fabrics.FabricStatus:
    """The status as it should be; conditions keep their transition time while they stay the same."""
    statements = [
        (
            fabrics.CONNECTED,
            view.connection.connected,
            view.connection.reason,
            view.connection.message,
        ),
        _dropped(dropped_fields),
    ]
    if view.listed:
        statements.append(_mapped(view))
    return fabrics.FabricStatus(
        conditions=tuple(
            meta.transition(
                fabric.status.conditions,
                kind,
                status=holds,
                reason=reason,
                message=message,
                now=meta.timestamp(now),
            )
            for kind, holds, reason, message in statements
        ),
        devices=len(view.devices),
        attached=attached,
        hosts=len(view.hosts),
    )


def document(fabric: fabrics.Fabric, wanted: fabrics.FabricStatus) -> dict[str, Any]:
    """The object for a server-side apply to the status."""
    return {
        "apiVersion": fabrics.API_VERSION,
        "kind": fabrics.KIND,
        "metadata": {"name": fabric.metadata.name, "uid": fabric.metadata.uid},
        "status": {
            "conditions": [msgspec.to_builtins(condition) for condition in wanted.conditions],
            "devices": wanted.devices,
            "attached": wanted.attached,
            "hosts": wanted.hosts,
        },
    }


def _dropped(fields: Collection[str]) -> tuple[str, bool, str, str]:
    if not fields:
        return fabrics.FEATURES_DROPPED, False, "AllKept", NO_FIELDS_LOST
    message = (
        f"the API server drops {', '.join(sorted(fields))} of ResourceSlices, so unattached devices are not "
        "published; enable the feature gates DRADeviceBindingConditions and DRADeviceTaints, or use Kubernetes "
        "1.36 or later"
    )
    return fabrics.FEATURES_DROPPED, True, "FieldsDropped", message


def _mapped(view: session.Session) -> tuple[str, bool, str, str]:
    if view.nodes.problems:
        return fabrics.HOSTS_MAPPED, False, "HostsNotMapped", "; ".join(view.nodes.problems)[:1024]
    message = f"{len(view.nodes.host_of)} of {len(view.hosts)} hosts are nodes"
    return fabrics.HOSTS_MAPPED, bool(view.nodes.host_of), "HostsMapped", message
