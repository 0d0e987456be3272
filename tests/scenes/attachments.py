"""DeviceAttachments, as values and as the documents that an API server takes."""

from drawbar.driver.api import attachments, meta

DELETED_AT = "2026-01-02T03:00:00Z"


def make_true_condition(condition):
    """Return the condition itself, or the condition of that type with the status True."""
    return meta.Condition(type=condition, status="True") if isinstance(condition, str) else condition


def attachment(
    *conditions,
    name="",
    uid="",
    finalizers=(),
    annotations=None,
    created=None,
    deleting=False,
    serial="",
    device_class="gpu",
    identity=None,
    device="d",
    status=None,
    phase=attachments.PENDING,
    operation=None,
    connection=None,
    node=None,
    error=None,
    **spec,
):
    """Return a DeviceAttachment; `conditions` are conditions, or types of conditions that are True.

    Args:
        conditions: of the status.
        name: `fabric.device` unless it is given.
        deleting: whether it is being deleted, or since when.
        identity: in place of `device_class` and `serial`.
        status: in place of `conditions` and all that the status has.
        spec: fields of the spec that differ from a device that no claim uses.
    """
    fields = {
        "fabric": "fab",
        "device_id": device,
        "driver": "drawbar.dev",
        "pool": "fab/enc",
        "device": device,
        "node_name": "n1",
        "host_id": "h1",
        "identity": identity or attachments.Identity(device_class=device_class, serial=serial),
    } | spec
    usual = attachments.AttachmentStatus(
        phase=phase,
        conditions=tuple(map(make_true_condition, conditions)),
        operation=operation,
        connection=connection,
        node=node,
        error=error,
    )
    return attachments.DeviceAttachment(
        metadata=meta.ObjectMeta(
            name=name or f"{fields['fabric']}.{device}",
            uid=uid,
            finalizers=finalizers,
            labels={attachments.NODE_LABEL: attachments.node_label(fields["node_name"])},
            annotations=annotations or {},
            creation_timestamp=created,
            deletion_timestamp=DELETED_AT if deleting is True else deleting or None,
        ),
        spec=attachments.AttachmentSpec(**fields),
        status=usual if status is None else status,
    )


def document(name, node, *, held=False, metadata=None, **spec):
    """Return the document of a DeviceAttachment on that node; its device is named by what follows the fabric in `name`.

    Args:
        name: `fabric.device`.
        node: the Node's name.
        held: with the label and the finalizer that the controller sets.
        metadata: more of the metadata.
        spec: fields of the spec that differ from a GPU that no claim uses.
    """
    device = name.partition(".")[2] or name
    held_metadata = (
        {"labels": {"drawbar.dev/node": node}, "finalizers": [attachments.FINALIZER]} if held else {}
    )
    fields = {
        "fabric": "fab",
        "deviceID": device,
        "driver": "drawbar.dev",
        "pool": "fab/enc",
        "device": device,
        "nodeName": node,
        "hostID": "h1",
        "identity": {"deviceClass": "gpu"},
    }
    return _document(name, metadata={**held_metadata, **(metadata or {})}, spec=fields | spec)


def condition(kind, status="True", reason="Said", at="2026-01-02T03:04:05Z"):
    """Return the document of a condition."""
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": at}


def _document(name, *, metadata=None, **content):
    kind = {"apiVersion": "drawbar.dev/v1alpha1", "kind": "DeviceAttachment"}
    return kind | {"metadata": {"name": name, **(metadata or {})}} | content
