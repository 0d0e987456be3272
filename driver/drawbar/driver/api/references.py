"""The reference to a claim and its parameters, as both daemons pass it to the preparation of a device; pure."""

from drawbar.driver.api import attachments, bindings, claims, configurations, parameters


def make_reference(
    claim: claims.ResourceClaim,
    driver: str,
    where: bindings.Key,
    device_parameters: parameters.DeviceParameters,
) -> attachments.ClaimReference:
    """Return the reference to the claim of a device.

    Args:
        claim: that was given it.
        driver: the DRA driver's name.
        where: the device in the claim's allocation.
        device_parameters: the device's parameters.
    """
    requests: dict[bindings.Key, set[str]] = {}
    allocation = claim.status.allocation
    # Admin access, shares and parameters stand in the claim alone.
    plain = (
        not configurations.has_parameters(allocation, driver)
        and allocation is not None
        and not any(
            result.admin_access or result.share_id
            for result in allocation.devices.results
            if result.driver == driver
        )
    )
    for result in claim.results(driver):
        # A request of a prioritised list is named request/subrequest; the kubelet has the request alone.
        requests.setdefault(bindings.Key.from_result(result), set()).add(result.request.split("/", 1)[0])
    return attachments.ClaimReference(
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        uid=claim.metadata.uid,
        requests=tuple(sorted(requests.get(where, ()))),
        devices=len(requests) if plain else 0,
        memory_mode=device_parameters.memory.mode or "",
        memory_interleave=bool(device_parameters.memory.interleave),
        memory_granularity=device_parameters.memory.granularity or 0,
        initialise=_initialisation(device_parameters),
        drain=hook(device_parameters.drain),
        clean_up=hook(device_parameters.clean_up),
        virtual_functions=device_parameters.virtual_functions,
        minimum_versions=attachments.Versions(
            driver=device_parameters.minimum_versions.driver or "",
            firmware=device_parameters.minimum_versions.firmware or "",
        ),
    )


def hook(source: parameters.Hook) -> attachments.Hook | None:
    """Return the hook that the parameters name, with its deadline; None without one."""
    if source.hook is None:
        return None
    seconds = source.timeout_seconds
    return attachments.Hook(
        hook=source.hook, timeout_seconds=parameters.HOOK_SECONDS if seconds is None else seconds
    )


def _initialisation(device_parameters: parameters.DeviceParameters) -> attachments.Initialisation | None:
    if device_parameters.initialise.hook is None and device_parameters.fpga.bitstream is None:
        return None
    seconds = device_parameters.initialise.timeout_seconds
    return attachments.Initialisation(
        hook=device_parameters.initialise.hook or "",
        timeout_seconds=parameters.HOOK_SECONDS if seconds is None else seconds,
        bitstream=device_parameters.fpga.bitstream or "",
        sha256=device_parameters.fpga.sha256 or "",
    )
