"""What classes and a v1alpha3 claim say of how their devices are used, as the allocation carries it to the node; pure.

That is `DeviceParameters`, read by the node when a pod starts; what only the allocation needs, `AllocationParameters`, is
left out. All of it is judged before anything is attached: a claim that a node would refuse is told so at once.

Source: `resource.k8s.io/v1alpha3` DeviceAllocationConfiguration; at most 64 entries.
"""

from collections.abc import Iterable, Mapping

from drawbar.driver.api import claims, classic, configurations
from drawbar.driver.api import parameters as device_parameters
from drawbar.driver.controller.classic import parameters

# One is our own, the handle.
ENTRIES_MAX = 63


def config(
    claim: classic.Claim, classes: Mapping[str, classic.Class], driver: str
) -> tuple[claims.AllocatedConfiguration, ...]:
    """The entries, those of the classes first.

    Args:
        claim: whose requests all have a class that is known.
        classes: by name.
        driver: ours.

    Raises:
        parameters.Wrong: no node would obey them.
    """
    found = []
    for name, device_class in classes.items():
        users = tuple(one.name for one in claim.requests if one.class_name == name)
        found += [
            _entry(device_parameters.Source.CLASS, users, one, driver)
            for one in _of_devices(device_class.config)
        ]
    found += [
        _entry(device_parameters.Source.CLAIM, one.requests, one, driver) for one in _of_devices(claim.config)
    ]
    if len(found) > ENTRIES_MAX:
        raise parameters.Wrong(
            f"it and its classes have {len(found)} entries of opaque parameters, and {ENTRIES_MAX} are the most: "
            f"write what belongs together as one"
        )
    _judge(claim, tuple(found), driver)
    return tuple(found)


def _of_devices(said: Iterable[classic.Opaque]) -> list[classic.Opaque]:
    return [
        one
        for one in said
        if not isinstance(one.parameters, dict)
        or one.parameters.get("kind") != device_parameters.ALLOCATION_KIND
    ]


def _entry(
    source: str, requests: tuple[str, ...], said: classic.Opaque, driver: str
) -> claims.AllocatedConfiguration:
    opaque = claims.OpaqueConfiguration(driver=driver, parameters=said.parameters)
    return claims.AllocatedConfiguration(source=source, requests=requests, opaque=opaque)


def _judge(claim: classic.Claim, found: tuple[claims.AllocatedConfiguration, ...], driver: str) -> None:
    """Reads them as the node will, with a device for each request."""
    results = tuple(
        claims.AllocationResult(request=one.name, driver=driver, pool="", device=one.name)
        for one in claim.requests
    )
    allocation = claims.Allocation(devices=claims.DeviceAllocation(results=results, config=found))
    _, unfit = configurations.judged(allocation, driver)
    if unfit is not None:
        raise parameters.Wrong(unfit.message)
