"""Claims as the scheduler allocates them."""

from drawbar.driver.api import bindings, claims, meta

DRIVER = "drawbar.dev"
MOMENT = "2026-01-02T00:00:00Z"


def make_allocated_claim(
    *devices,
    name="c",
    uid="",
    version="",
    pool="f/e",
    node="n1",
    pods=(),
    binding=True,
    reported=(),
    at=MOMENT,
    **result,
):
    """Return a claim that was given these devices.

    Args:
        devices: names.
        pods: names of the pods that it is reserved for.
        binding: whether the devices have binding conditions.
        reported: the status of its devices.
        at: the timestamp of its allocation.
        result: fields of each result.
    """
    conditions = bindings.binding_conditions(DRIVER) if binding else ()
    results = tuple(
        claims.AllocationResult(
            request="r", driver=DRIVER, pool=pool, device=device, binding_conditions=conditions, **result
        )
        for device in devices
    )
    return claims.ResourceClaim(
        metadata=meta.ObjectMeta(
            name=name, namespace="ns", uid=uid or f"uid-{name}", resource_version=version
        ),
        status=claims.ClaimStatus(
            allocation=claims.Allocation(
                devices=claims.DeviceAllocation(results=results),
                node_selector=claims.one_node(node),
                allocation_timestamp=at,
            ),
            reserved_for=tuple(claims.Consumer(resource="pods", name=pod, uid=pod) for pod in pods),
            devices=reported,
        ),
    )
