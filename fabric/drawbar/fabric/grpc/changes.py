"""Events of a watch as messages of fabric.proto, and back."""

from typing import assert_never

from drawbar.fabric import contract
from drawbar.fabric.grpc import conversion
from drawbar.proto.fabric.v1alpha1 import fabric_pb2 as pb


def event_message(event: contract.WatchEvent) -> pb.WatchEvent:
    """An event on the wire."""
    match event:
        case contract.DeviceChanged(version=version, device=device):
            return pb.WatchEvent(version=version, device_changed=conversion.device_message(device))
        case contract.DeviceGone(version=version, device_id=device_id):
            return pb.WatchEvent(version=version, device_gone=device_id)
        case contract.HostChanged(version=version, host=host):
            return pb.WatchEvent(version=version, host_changed=conversion.host_message(host))
        case contract.OperationChanged(version=version, operation=operation):
            return pb.WatchEvent(version=version, operation_changed=conversion.operation_message(operation))
        case contract.Bookmark(version=version):
            return pb.WatchEvent(version=version, bookmark=pb.Bookmark())
        case contract.Resync():
            return pb.WatchEvent(resync=pb.Resync())
        case _:
            assert_never(event)


def event(message: pb.WatchEvent) -> contract.WatchEvent:
    """An event as the plugin sent it; one that this version does not know is a bookmark."""
    match message.WhichOneof("event"):
        case "device_changed":
            device = conversion.device(message.device_changed)
            return contract.DeviceChanged(version=message.version, device=device)
        case "device_gone":
            return contract.DeviceGone(version=message.version, device_id=message.device_gone)
        case "host_changed":
            return contract.HostChanged(version=message.version, host=conversion.host(message.host_changed))
        case "operation_changed":
            operation = conversion.operation(message.operation_changed)
            return contract.OperationChanged(version=message.version, operation=operation)
        case "resync":
            return contract.Resync()
        case "bookmark" | None:
            return contract.Bookmark(version=message.version)
