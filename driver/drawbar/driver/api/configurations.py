"""The parameters of each device of a claim: those of its class, and then the claim's additions.

Invariant: a claim changes no value of its class, and sets no variable that its class does not allow. So the right to
write claims allows no more use of a device than its administrator permits.

Of several entries of one source the later one counts. An entry with requests applies only to the devices of these
requests. Source: `resource.k8s.io` DeviceAllocationConfiguration.
"""

import fnmatch
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from drawbar.driver.api import attachments, bindings, claims, meta, parameters
from drawbar.driver.catalogue import reasons

Topic = TypeVar("Topic", bound=meta.Struct)


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the allocation's configuration, decoded.

    Attributes:
        requests: the concerned requests; empty for all.
    """

    source: parameters.Source
    requests: tuple[str, ...]
    device_parameters: parameters.DeviceParameters

    def concerns(self, requests: Sequence[str]) -> bool:
        """Return whether the layer applies to a device of one of these requests, `request` or `request/alternative`."""
        return not self.requests or any(
            request in self.requests or request.split("/", 1)[0] in self.requests for request in requests
        )


def has_parameters(allocation: claims.Allocation | None, driver: str) -> bool:
    """Return whether the allocation has parameters for this driver."""
    return any(True for _ in _entries(allocation, driver))


def has_own_bitstream(allocation: claims.Allocation | None, driver: str) -> bool:
    """Return whether the claim, not its DeviceClass, names a bitstream for the driver's devices."""
    return any(
        isinstance(opaque.parameters, dict) and "fpga" in opaque.parameters
        for entry, opaque in _entries(allocation, driver)
        if entry.source != parameters.Source.CLASS
    )


def try_by_device(
    allocation: claims.Allocation | None, driver: str
) -> tuple[dict[bindings.Key, parameters.DeviceParameters], attachments.Failure | None]:
    """Return the result of `by_device`; where it raises, none and the failure."""
    try:
        return by_device(allocation, driver), None
    except parameters.Invalid as invalid:
        return {}, attachments.Failure(reason=reasons.INVALID_PARAMETERS, message=str(invalid))


def by_device(
    allocation: claims.Allocation | None, driver: str
) -> dict[bindings.Key, parameters.DeviceParameters]:
    """Return the parameters of each of the driver's devices that has some; those of all its requests together.

    Raises:
        parameters.Invalid: some are invalid.
    """
    layers, problems = _layers(allocation, driver)
    if problems:
        raise parameters.Invalid(problems)
    if allocation is None or not layers:
        return {}
    requests: dict[bindings.Key, list[str]] = {}
    for result in allocation.devices.results:
        if result.driver == driver:
            requests.setdefault(bindings.Key.from_result(result), []).append(result.request)
    by_key = {
        key: merge([layer for layer in layers if layer.concerns(names)]) for key, names in requests.items()
    }
    return {
        key: device_parameters
        for key, device_parameters in by_key.items()
        if device_parameters != parameters.NOTHING
    }


def merge(layers: Sequence[Layer]) -> parameters.DeviceParameters:
    """Return one device's parameters.

    Raises:
        parameters.Invalid: the claim sets a field that only its class may set.
    """
    by_class = _merge(
        [layer.device_parameters for layer in layers if layer.source is parameters.Source.CLASS]
    )
    by_claim = _merge(
        [layer.device_parameters for layer in layers if layer.source is parameters.Source.CLAIM]
    )
    merged = _merge([by_class, by_claim])
    problems = (
        *(f"opaque parameters of the claim: {problem}" for problem in _violations(by_class, by_claim)),
        *(f"opaque parameters: {problem}" for problem in _incomplete(merged)),
    )
    if problems:
        raise parameters.Invalid(problems)
    # The list of allowed variables has served its purpose.
    return msgspec.structs.replace(merged, claim_variables=())


def _incomplete(merged: parameters.DeviceParameters) -> Iterator[str]:
    """Yield the problems of the combined parameters of class and claim."""
    if (merged.fpga.bitstream is None) != (merged.fpga.sha256 is None):
        yield "fpga.bitstream and fpga.sha256 belong together: give both"
    if merged.memory.granularity is not None and not merged.memory.interleave:
        yield "memory.granularity is that of an interleaved region: give memory.interleave: true, too"
    if merged.virtual_functions.offered and not merged.virtual_functions.groups:
        yield "virtualFunctions.offered needs virtualFunctions.groups: name some"
    if merged.vendor_kind is not None and merged.device_files.read_only:
        yield "deviceFiles.readOnly has no effect with vendorKind, whose files let a container write: leave one of them out"
    for topic, hook in (("drain", merged.drain), ("cleanUp", merged.clean_up)):
        if hook.timeout_seconds is not None and hook.hook is None:
            yield f"{topic}.timeoutSeconds is a hook's: name it in {topic}.hook"
    begins = merged.initialise.hook is not None or merged.fpga.bitstream is not None
    if merged.initialise.timeout_seconds is not None and not begins:
        yield (
            "initialise.timeoutSeconds is a hook's or a bitstream's: name one in initialise.hook of the class, or in "
            "fpga.bitstream of class or claim"
        )


def _violations(
    by_class: parameters.DeviceParameters, by_claim: parameters.DeviceParameters
) -> Iterator[str]:
    for name in by_claim.environment:
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in by_class.claim_variables):
            yield (
                f"environment.{name} is not among the claimVariables of its DeviceClass: set it in the "
                f"pod's containers, or have an administrator add it to claimVariables of the class's parameters"
            )
    for topic, theirs, own in (
        ("deviceFiles", by_class.device_files, by_claim.device_files),
        ("network", by_class.network, by_claim.network),
        ("memory", by_class.memory, by_claim.memory),
        ("fpga", by_class.fpga, by_claim.fpga),
    ):
        fixed, wanted = msgspec.to_builtins(theirs), msgspec.to_builtins(own)
        for name in wanted:
            if name in fixed and fixed[name] != wanted[name]:
                yield (
                    f"{topic}.{name} is set by its DeviceClass, to {fixed[name]!r}, and a claim cannot change it: "
                    f"leave it out"
                )


def _layers(allocation: claims.Allocation | None, driver: str) -> tuple[list[Layer], tuple[str, ...]]:
    """Return the entries for this driver, and the problems of all of them."""
    layers, problems = [], []
    for entry, opaque in _entries(allocation, driver):
        # Only entries marked as a class's come from an administrator.
        source = parameters.Source.CLAIM
        if entry.source == parameters.Source.CLASS:
            source = parameters.Source.CLASS
        try:
            decoded = parameters.decode(opaque.parameters, source)
        except parameters.Invalid as invalid:
            of = f" of request {', '.join(entry.requests)}" if source is parameters.Source.CLASS else ""
            problems += [
                f"opaque parameters of {source.owner}{of}: {problem}" for problem in invalid.problems
            ]
        else:
            layers.append(Layer(source=source, requests=entry.requests, device_parameters=decoded))
    return layers, tuple(problems)


def _entries(
    allocation: claims.Allocation | None, driver: str
) -> Iterator[tuple[claims.AllocatedConfiguration, claims.OpaqueConfiguration]]:
    return claims.find_own(allocation.devices.config if allocation is not None else (), driver)


def _merge(layers: Sequence[parameters.DeviceParameters]) -> parameters.DeviceParameters:
    """Return the layers as one; a later layer takes precedence."""
    result = parameters.NOTHING
    for layer in layers:
        timeout, kind = layer.attach_timeout_seconds, layer.vendor_kind
        result = parameters.DeviceParameters(
            environment={**result.environment, **layer.environment},
            claim_variables=(*result.claim_variables, *layer.claim_variables),
            device_files=_overlay(result.device_files, layer.device_files),
            network=_overlay(result.network, layer.network),
            memory=_overlay(result.memory, layer.memory),
            initialise=_overlay(result.initialise, layer.initialise),
            drain=_overlay(result.drain, layer.drain),
            clean_up=_overlay(result.clean_up, layer.clean_up),
            fpga=_overlay(result.fpga, layer.fpga),
            minimum_versions=_overlay(result.minimum_versions, layer.minimum_versions),
            virtual_functions=_overlay(result.virtual_functions, layer.virtual_functions),
            attach_timeout_seconds=result.attach_timeout_seconds if timeout is None else timeout,
            vendor_kind=result.vendor_kind if kind is None else kind,
        )
    return result


def _overlay(lower: Topic, upper: Topic) -> Topic:
    merged = {**msgspec.to_builtins(lower), **msgspec.to_builtins(upper)}
    return msgspec.convert(merged, type(lower))
