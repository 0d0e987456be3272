"""Which devices each container of a pod gets."""

from drawbar.mocks.claims import documents
from drawbar.mocks.kube import meta
from drawbar.mocks.kubelet import claiminfo, statuses


def test_a_container_gets_the_devices_of_its_own_extended_resources_alone():
    devices = [
        claiminfo.Device(driver="d", pool="p", device=name, requests=(name,), cdi=(f"d/claim={name}",))
        for name in ("first", "second")
    ]
    info = claiminfo.ClaimInfo(namespace="n", name="made", uid="u", drivers=("d",), devices=devices)
    mappings = [
        {"containerName": "a", "resourceName": "d/disk", "requestName": "first"},
        {"containerName": "b", "resourceName": "d/disk", "requestName": "second"},
    ]
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "made", "requestMappings": mappings}}
    pod = documents.Document(metadata=meta.ObjectMeta(name="pod"), status=status)
    claims = {statuses.EXTENDED: info}
    cdi_ids = {name: statuses.cdi_ids(pod, {"name": name}, claims) for name in ("a", "b", "c")}
    assert cdi_ids == {"a": ["d/claim=first"], "b": ["d/claim=second"], "c": []}
