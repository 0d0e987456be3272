"""Which claims have which devices, as watches of the API server report them."""

import msgspec
import pytest

from drawbar.driver.api import classic, classic_v1alpha2, classic_v1alpha3, handles
from drawbar.driver.controller import names
from drawbar.driver.controller.classic import claim_watch

DRIVER, OTHER = "drawbar.dev", "gpu.example.com"
FIRST, SECOND = (names.DeviceKey(fabric="f", device=f"gpu-{number}") for number in range(2))


@pytest.fixture(params=classic.Version)
def watching(request):
    """Return two functions: one shows a claim to a version's watch, the other lists a device's claims."""
    version = request.param
    module = classic_v1alpha2 if version is classic.Version.V1ALPHA2 else classic_v1alpha3
    watched = claim_watch.ClaimWatch(
        None,
        driver=DRIVER,
        versions=frozenset({version}),
        fault=lambda expression: None,
        changed=lambda: None,
        gone=lambda uid: None,
    )
    watch = watched.claim_mirrors[version]

    def build_allocation(handle, driver):
        if module is classic_v1alpha2:
            return module.build_allocation(handle, driver, shareable=False)
        return module.build_allocation(handle, driver)

    def report(name, resource_version, driver, *devices, gone=False):
        handle = handles.Handle(
            node="n1",
            devices=tuple(
                handles.HandleDevice(
                    request="r", fabric=key.fabric, pool="f", device=key.device, attachment=key.attachment
                )
                for key in devices
            ),
        )
        metadata = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": str(resource_version)}
        status = build_allocation(handle, driver) if devices else {}
        claim = msgspec.convert({"metadata": metadata, "status": status}, module.ResourceClaim)
        if gone:
            watch.unlearn(claim)
        else:
            watch.learn(claim)

    return report, lambda key: [claim.name.name for claim in watched.holders(key)]


def test_the_claims_that_have_a_device_are_listed_by_it(watching):
    report, holders = watching
    assert holders(FIRST) == []
    report("c", 1, DRIVER, FIRST, SECOND)
    report("theirs", 2, OTHER, FIRST)
    assert (holders(FIRST), holders(SECOND)) == (["c"], ["c"])
    report("c", 3, DRIVER, SECOND)
    assert (holders(FIRST), holders(SECOND)) == ([], ["c"])
    report("d", 4, DRIVER, SECOND)
    assert holders(SECOND) == ["c", "d"]
    report("c", 5, DRIVER)
    assert holders(SECOND) == ["d"]
    report("d", 6, DRIVER, SECOND, gone=True)
    assert holders(SECOND) == []
