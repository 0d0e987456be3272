"""A CDI specification as JSON, both ways.

`encode` leaves out what is not set; `decode` takes back exactly what `encode` can give, and refuses a field that it
does not know, as every runtime does, since what it stands for would be lost on the next write.

Source: Container Device Interface specification 1.1.0, schema/schema.json and schema/defs.json.
"""

import functools
from typing import Any

from drawbar.cdi import errors, fields, rules, spec, versions


def encode(content: spec.Spec) -> dict[str, Any]:
    """The document of a valid specification, in the lowest version that expresses it.

    Raises:
        errors.InvalidSpec: it is not valid.
    """
    rules.validate(content)
    return {
        "cdiVersion": versions.lowest(content),
        "kind": content.kind,
        **_set(annotations=dict(content.annotations)),
        "devices": [
            {
                "name": device.name,
                **_set(annotations=dict(device.annotations)),
                "containerEdits": _edits(device.edits),
            }
            for device in content.devices
        ],
        **_set(containerEdits=_edits(content.edits)),
    }


def decode(document: object) -> spec.Spec:
    """The specification that a document holds.

    Raises:
        errors.InvalidSpec: it holds none, or one that breaks a rule; the message names the place.
    """
    top = fields.Fields(document, "the CDI file")
    version = top.text("cdiVersion").removeprefix("v")
    content = spec.Spec(
        kind=top.text("kind"),
        annotations=top.mapping("annotations"),
        devices=tuple(_decode_device(entry) for entry in top.nested_all("devices")),
        edits=_decode_edits(top.nested("containerEdits")),
    )
    top.end()
    rules.validate(content)
    if version not in versions.KNOWN:
        raise errors.InvalidSpec(f"CDI spec {content.kind} is of the unknown version {version!r}")
    if not versions.covers(version, content):
        raise errors.InvalidSpec(
            f"CDI spec {content.kind} says version {version} and uses what came with {versions.lowest(content)}"
        )
    return content


def _set(**content: Any) -> dict[str, Any]:
    return {key: value for key, value in content.items() if value or (value == 0 and value is not False)}


@functools.lru_cache(maxsize=rules.EDITS_KEPT)
def _edits(edits: spec.ContainerEdits) -> dict[str, Any]:
    # Shared by the documents of all claims that get the device: nobody changes it.
    rdt = edits.intel_rdt
    return _set(
        env=list(edits.env),
        deviceNodes=[_node(node) for node in edits.device_nodes],
        mounts=[_mount(mount) for mount in edits.mounts],
        hooks=[_hook(hook) for hook in edits.hooks],
        netDevices=[{"hostInterfaceName": net.host_name, "name": net.name} for net in edits.net_devices],
        additionalGids=list(edits.additional_gids),
    ) | ({} if rdt is None else {"intelRdt": _intel_rdt(rdt)})


def _node(node: spec.DeviceNode) -> dict[str, Any]:
    return {"path": node.path} | _set(
        hostPath=node.host_path,
        type=node.type,
        major=node.major,
        minor=node.minor,
        fileMode=node.file_mode,
        permissions=node.permissions,
        uid=node.uid,
        gid=node.gid,
    )


def _mount(mount: spec.Mount) -> dict[str, Any]:
    return {"hostPath": mount.host_path, "containerPath": mount.container_path} | _set(
        type=mount.type, options=list(mount.options)
    )


def _hook(hook: spec.Hook) -> dict[str, Any]:
    return {"hookName": hook.name, "path": hook.path} | _set(
        args=list(hook.args), env=list(hook.env), timeout=hook.timeout_seconds
    )


def _intel_rdt(rdt: spec.IntelRdt) -> dict[str, Any]:
    return _set(
        closID=rdt.clos_id,
        l3CacheSchema=rdt.l3_cache_schema,
        memBwSchema=rdt.mem_bw_schema,
        schemata=list(rdt.schemata),
        enableMonitoring=rdt.enable_monitoring,
        enableCMT=rdt.enable_cmt,
        enableMBM=rdt.enable_mbm,
    )


def _decode_device(entry: fields.Fields) -> spec.Device:
    device = spec.Device(
        name=entry.text("name"),
        annotations=entry.mapping("annotations"),
        edits=_decode_edits(entry.nested("containerEdits")),
    )
    entry.end()
    return device


def _decode_edits(entry: fields.Fields | None) -> spec.ContainerEdits:
    if entry is None:
        return spec.EMPTY
    rdt = entry.nested("intelRdt")
    edits = spec.ContainerEdits(
        env=entry.texts("env"),
        device_nodes=tuple(_decode_node(node) for node in entry.nested_all("deviceNodes")),
        mounts=tuple(_decode_mount(mount) for mount in entry.nested_all("mounts")),
        hooks=tuple(_decode_hook(hook) for hook in entry.nested_all("hooks")),
        net_devices=tuple(_decode_net(net) for net in entry.nested_all("netDevices")),
        additional_gids=entry.numbers("additionalGids"),
        intel_rdt=None if rdt is None else _decode_rdt(rdt),
    )
    entry.end()
    return edits


def _decode_node(entry: fields.Fields) -> spec.DeviceNode:
    node = spec.DeviceNode(
        path=entry.text("path"),
        host_path=entry.text("hostPath", ""),
        type=entry.text("type", ""),
        major=entry.number("major"),
        minor=entry.number("minor"),
        file_mode=entry.number("fileMode"),
        permissions=entry.text("permissions", ""),
        uid=entry.number("uid"),
        gid=entry.number("gid"),
    )
    entry.end()
    return node


def _decode_mount(entry: fields.Fields) -> spec.Mount:
    mount = spec.Mount(
        host_path=entry.text("hostPath"),
        container_path=entry.text("containerPath"),
        type=entry.text("type", ""),
        options=entry.texts("options"),
    )
    entry.end()
    return mount


def _decode_hook(entry: fields.Fields) -> spec.Hook:
    hook = spec.Hook(
        name=entry.text("hookName"),
        path=entry.text("path"),
        args=entry.texts("args"),
        env=entry.texts("env"),
        timeout_seconds=entry.number("timeout"),
    )
    entry.end()
    return hook


def _decode_net(entry: fields.Fields) -> spec.NetDevice:
    net = spec.NetDevice(host_name=entry.text("hostInterfaceName"), name=entry.text("name"))
    entry.end()
    return net


def _decode_rdt(entry: fields.Fields) -> spec.IntelRdt:
    rdt = spec.IntelRdt(
        clos_id=entry.text("closID", ""),
        l3_cache_schema=entry.text("l3CacheSchema", ""),
        mem_bw_schema=entry.text("memBwSchema", ""),
        schemata=entry.texts("schemata"),
        enable_monitoring=entry.flag("enableMonitoring"),
        enable_cmt=entry.flag("enableCMT"),
        enable_mbm=entry.flag("enableMBM"),
    )
    entry.end()
    return rdt
