"""What a DeviceAttachment identifies its device by."""

from drawbar.driver.api import attachments, meta


def test_the_node_waits_for_the_device_chosen_by_the_fabric():
    spec = attachments.AttachmentSpec(
        fabric="f",
        device_id="m1-1",
        driver="drawbar.dev",
        pool="f",
        device="m1-1",
        node_name="n1",
        host_id="h1",
        identity=attachments.Identity(device_class="nvme", slot="3"),
    )
    attachment = attachments.DeviceAttachment(metadata=meta.ObjectMeta(name="f.m1-1"), spec=spec)
    assert (attachment.identity, attachment.device_id) == (spec.identity, "m1-1")
    device = attachments.DeviceRecord(id="disk-3", serial="SN3", pci_id="144d:a824")
    came = attachments.DeviceAttachment(
        metadata=attachment.metadata, spec=spec, status=attachments.AttachmentStatus(device=device)
    )
    assert came.device_id == "disk-3"
    assert came.identity == attachments.Identity(
        device_class="nvme", serial="SN3", pci_id="144d:a824", slot="3"
    )
