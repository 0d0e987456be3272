"""From a claim, its class and their parameters to what is asked for; pure.

A claim is this driver's if its class names the driver (v1alpha2) or it names the driver itself (v1alpha3). One that was
allocated, or that has our finalizer, stays ours when its class is gone: what is held for it has to come back.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from drawbar.driver.api import classic, demands, handles
from drawbar.driver.controller.allocation import requests
from drawbar.driver.controller.classic import parameters, sayings

CONFIG_MAP = "ConfigMap"
# ConfigMaps that hold parameters have it; others are not watched.
PARAMETERS_LABEL = "drawbar.dev/parameters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where to look things up.

    Attributes:
        classes: by version and name.
        data: by name, the ConfigMaps that hold parameters.
        fault: why a CEL expression does not compile; None for one that does.
    """

    driver: str
    classes: Mapping[tuple[classic.Version, str], classic.Class]
    data: Mapping[classic.Name, Mapping[str, str]]
    fault: Callable[[str], str | None]


def is_ours(claim: classic.Claim, sources: Sources) -> bool:
    """Whether this driver's controller allocates the claim."""
    if claim.allocation is not None:
        return claim.allocation.driver == sources.driver
    if claim.version is classic.Version.V1ALPHA3:
        return claim.controller == sources.driver
    found = sources.classes.get((claim.version, claim.class_name))
    return found.driver == sources.driver if found is not None else claim.held


def wanted(claim: classic.Claim, sources: Sources) -> requests.Wanted:
    """What a claim of ours asks for; a problem where that cannot be told, or not be done."""
    try:
        if claim.version is classic.Version.V1ALPHA3:
            found = _by_requests(claim, sources)
        else:
            found = _by_parameters(claim, sources)
    except parameters.Wrong as wrong:
        return requests.Wanted(problem=str(wrong))
    problem = _problem(found, sources)
    return replace(found, problem=problem) if problem else found


def _problem(found: requests.Wanted, sources: Sources) -> str:
    if found.devices > parameters.COUNT_MAX:
        return f"it asks for {found.devices} devices, and {parameters.COUNT_MAX} are the most in one claim"
    for request in found.requests:
        for expression in request.selectors:
            why = sources.fault(expression)
            if why is not None:
                return f"the selector {demands.shown(expression)} cannot be read: {why}"
    return ""


def _class(name: str, claim: classic.Claim, sources: Sources) -> classic.Class:
    found = sources.classes.get((claim.version, name))
    if found is None:
        raise parameters.Wrong(f"its class {name} does not exist")
    return found


def _by_parameters(claim: classic.Claim, sources: Sources) -> requests.Wanted:
    found = _class(claim.class_name, claim, sources)
    said = _data(found.parameters, sources) if found.parameters else parameters.by_name(found.name)
    if claim.parameters is not None:
        said = said.narrowed(_data(claim.parameters, sources))
    return requests.Wanted(
        requests=(said.request(handles.WHOLE_CLAIM),),
        shareable=bool(said.shareable),
        suitable_nodes=(found.suitable_nodes,) if found.suitable_nodes is not None else (),
    )


def _data(reference: classic.ParametersReference, sources: Sources) -> parameters.Parameters:
    if (reference.api_group, reference.kind) != ("", CONFIG_MAP):
        kind = f"{reference.kind}.{reference.api_group}" if reference.api_group else reference.kind
        raise parameters.Wrong(f"its parameters are a {kind}: write them as the data of a {CONFIG_MAP}")
    name = classic.Name(namespace=reference.namespace, name=reference.name)
    data = sources.data.get(name)
    if data is None:
        raise parameters.Wrong(
            f"{CONFIG_MAP} {name} with its parameters does not exist, or lacks the label {PARAMETERS_LABEL}"
        )
    try:
        return parameters.of_data(data)
    except parameters.Wrong as wrong:
        raise parameters.Wrong(f"{CONFIG_MAP} {name}: {wrong}") from wrong


def _by_requests(claim: classic.Claim, sources: Sources) -> requests.Wanted:
    if claim.unsupported:
        raise parameters.Wrong(
            f"{', and '.join(claim.unsupported)}: a driver's controller cannot do that here; leave it out"
        )
    found, nodes = [], []
    classes: dict[str, classic.Class] = {}
    for request in claim.requests:
        device_class = classes[request.class_name] = _class(request.class_name, claim, sources)
        said = parameters.of_opaque((*device_class.config, *claim.config), request.name)
        found.append(
            replace(
                said.request(request.name),
                count=request.count,
                selectors=(*device_class.selectors, *request.selectors),
            )
        )
        if device_class.suitable_nodes is not None:
            nodes.append(device_class.suitable_nodes)
    return requests.Wanted(
        requests=tuple(found),
        suitable_nodes=tuple(nodes),
        config=sayings.config(claim, classes, sources.driver),
    )
