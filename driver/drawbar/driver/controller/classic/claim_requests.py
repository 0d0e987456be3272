"""A claim's requests, from the claim, its class and their parameters; pure.

A claim is this driver's if its class names the driver (v1alpha2) or it names the driver itself (v1alpha3). A claim that
was allocated, or that has our finalizer, stays ours when its class is gone: its devices have to be released.

Parameters that only this driver understands are read strictly. With v1alpha2 they are the data of a ConfigMap that a
`parametersRef` names, all values text:

| key | value | meaning |
|---|---|---|
| `deviceClass` | `gpu`, `nvme`, ... | the class of the device |
| `model` | text | the model in the fabric manager's words |
| `selector` | a CEL expression | as in a DeviceClass of v1 |
| `count` | a whole number | the number of devices; 1 by default |
| `optional` | `true`, `false` | accept no device if none is left |
| `shareable` | `true`, `false` | several pods may use the claim at a time |
| `tolerations` | `key[=value][:effect]`, with commas; `*` is any key | the tolerated taints |

With v1alpha3 a claim says most of that itself. The rest, `optional` and `tolerations`, is an object of the kind
`AllocationParameters` among its opaque parameters. Objects of the kind `DeviceParameters` are for the node, which reads
them when a pod starts. They are copied into the allocation, and validated before anything is attached.

Source: `resource.k8s.io/v1alpha3` DeviceAllocationConfiguration; at most 64 entries.
"""

from collections.abc import Callable, Mapping

import msgspec

from drawbar.driver.api import claims, classic, configurations, demands, handles
from drawbar.driver.api import parameters as device_parameters
from drawbar.driver.controller.allocation import matching
from drawbar.fabric import contract

CONFIG_MAP = "ConfigMap"
# The label of ConfigMaps with parameters; others are not watched.
PARAMETERS_LABEL = "drawbar.dev/parameters"
# The most devices of one claim; `resource.k8s.io` allows as many results.
COUNT_MAX = 32
COUNT_CHARS = 2
# One more entry is our own, the handle.
ENTRIES_MAX = 63
CLASSES = frozenset(offered.value for offered in contract.OFFERED_CLASSES)
_TRUTHS = {"true": True, "false": False}
_EFFECTS = frozenset({matching.ANY, "NoSchedule", "NoExecute"})
_KEYS = frozenset({"deviceClass", "model", "selector", "count", "optional", "shareable", "tolerations"})


class InvalidParameters(Exception):
    """Invalid parameters; the message is a clause with the remedy."""


class ClaimRequests(msgspec.Struct, frozen=True, kw_only=True):
    """All requests of one claim.

    Attributes:
        shareable: whether several pods may use the claim at a time.
        suitable_nodes: the selectors of its classes; a node must match all.
        config: the entries of classes and claim for the node; v1alpha3.
        problem: the reason why it cannot be served, in one sentence; empty if it can.
    """

    requests: tuple[matching.Request, ...] = ()
    shareable: bool = False
    suitable_nodes: tuple[claims.NodeSelector, ...] = ()
    config: tuple[claims.AllocatedConfiguration, ...] = ()
    problem: str = ""

    @property
    def devices(self) -> int:
        """Return the largest number of devices that the claim takes."""
        return sum(request.count for request in self.requests)


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that claims refer to.

    Attributes:
        classes: the classes by version and name.
        data: the ConfigMaps with parameters, by name.
        fault: returns why a CEL expression does not compile; None for a valid one.
    """

    driver: str
    classes: Mapping[tuple[classic.Version, str], classic.Class]
    data: Mapping[classic.Name, Mapping[str, str]]
    fault: Callable[[str], str | None]


def is_ours(claim: classic.Claim, sources: Sources) -> bool:
    """Return whether this driver's controller allocates the claim."""
    if claim.allocation is not None:
        return claim.allocation.driver == sources.driver
    if claim.version is classic.Version.V1ALPHA3:
        return claim.controller == sources.driver
    device_class = sources.classes.get((claim.version, claim.class_name))
    return device_class.driver == sources.driver if device_class is not None else claim.has_finalizer


def read_requests(claim: classic.Claim, sources: Sources) -> ClaimRequests:
    """Return the requests of one of our claims; with a problem if they are unknown or impossible."""
    try:
        if claim.version is classic.Version.V1ALPHA3:
            result = _read_requests(claim, sources)
        else:
            result = _read_parameters(claim, sources)
    except InvalidParameters as error:
        return ClaimRequests(problem=str(error))
    return msgspec.structs.replace(result, problem=_problem(result, sources))


def _problem(result: ClaimRequests, sources: Sources) -> str:
    if result.devices > COUNT_MAX:
        return f"it asks for {result.devices} devices, and {COUNT_MAX} are the most in one claim"
    for request in result.requests:
        for expression in request.selectors:
            fault = sources.fault(expression)
            if fault is not None:
                return f"the selector {demands.shorten(expression)} cannot be read: {fault}"
    return ""


def _class(name: str, claim: classic.Claim, sources: Sources) -> classic.Class:
    device_class = sources.classes.get((claim.version, name))
    if device_class is None:
        raise InvalidParameters(f"its class {name} does not exist")
    return device_class


# v1alpha2.


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a class, a claim or both; None or empty if not given."""

    device_class: str = matching.ANY
    model: str = matching.ANY
    selectors: tuple[str, ...] = ()
    count: int | None = None
    optional: bool | None = None
    shareable: bool | None = None
    tolerations: tuple[matching.Toleration, ...] = ()

    def narrow(self, claim: "Parameters") -> "Parameters":
        """Return a class's parameters with those of a claim, which may add to them but not contradict them.

        Raises:
            InvalidParameters: they contradict each other.
        """
        for name, mine, theirs in (
            ("deviceClass", self.device_class, claim.device_class),
            ("model", self.model, claim.model),
        ):
            if mine and theirs and mine != theirs:
                raise InvalidParameters(
                    f"the claim asks for {name} {theirs}, and its class gives {mine} alone"
                )
        return Parameters(
            device_class=self.device_class or claim.device_class,
            model=self.model or claim.model,
            selectors=(*self.selectors, *claim.selectors),
            count=claim.count if claim.count is not None else self.count,
            optional=claim.optional if claim.optional is not None else self.optional,
            shareable=claim.shareable if claim.shareable is not None else self.shareable,
            tolerations=(*self.tolerations, *claim.tolerations),
        )

    def request(self, name: str) -> matching.Request:
        """Return the parameters as one request."""
        return matching.Request(
            name=name,
            count=self.count if self.count is not None else 1,
            device_class=self.device_class,
            model=self.model,
            selectors=self.selectors,
            tolerations=self.tolerations,
            optional=bool(self.optional),
        )


def _read_parameters(claim: classic.Claim, sources: Sources) -> ClaimRequests:
    device_class = _class(claim.class_name, claim, sources)
    if device_class.parameters:
        asked = _read_reference(device_class.parameters, sources)
    else:
        # A class without parameters means the class of devices that its name begins with, if any.
        first = device_class.name.partition(".")[0]
        asked = Parameters(device_class=first if first in CLASSES else matching.ANY)
    if claim.parameters is not None:
        asked = asked.narrow(_read_reference(claim.parameters, sources))
    return ClaimRequests(
        requests=(asked.request(handles.WHOLE_CLAIM),),
        shareable=bool(asked.shareable),
        suitable_nodes=(device_class.suitable_nodes,) if device_class.suitable_nodes is not None else (),
    )


def _read_reference(reference: classic.ParametersReference, sources: Sources) -> Parameters:
    if (reference.api_group, reference.kind) != ("", CONFIG_MAP):
        kind = f"{reference.kind}.{reference.api_group}" if reference.api_group else reference.kind
        raise InvalidParameters(f"its parameters are a {kind}: write them as the data of a {CONFIG_MAP}")
    name = classic.Name(namespace=reference.namespace, name=reference.name)
    data = sources.data.get(name)
    if data is None:
        raise InvalidParameters(
            f"{CONFIG_MAP} {name} with its parameters does not exist, or has no label {PARAMETERS_LABEL}"
        )
    try:
        return _parse(data)
    except InvalidParameters as error:
        raise InvalidParameters(f"{CONFIG_MAP} {name}: {error}") from error


def _parse(data: Mapping[str, str]) -> Parameters:
    unknown = sorted(data.keys() - _KEYS)
    if unknown:
        raise InvalidParameters(f"{unknown[0]!r} is not a parameter: known are {', '.join(sorted(_KEYS))}")
    values = {key: text.strip() for key, text in data.items()}
    device_class = values.get("deviceClass", matching.ANY)
    if device_class and device_class not in CLASSES:
        raise InvalidParameters(
            f"deviceClass {device_class!r} is unknown: use one of {', '.join(sorted(CLASSES))}"
        )
    return Parameters(
        device_class=device_class,
        model=values.get("model", matching.ANY),
        selectors=(values["selector"],) if values.get("selector") else (),
        count=_parse_count(values["count"]) if "count" in values else None,
        optional=_parse_truth("optional", values),
        shareable=_parse_truth("shareable", values),
        tolerations=_parse_tolerations(values.get("tolerations", "")),
    )


def _parse_count(text: str) -> int:
    # Python parses no number of more than 4,300 digits.
    if len(text) > COUNT_CHARS or not text.isdecimal() or not 1 <= int(text) <= COUNT_MAX:
        shown = text[: device_parameters.SHOWN_CHARS]
        raise InvalidParameters(f"count {shown!r} is not a whole number from 1 to {COUNT_MAX}")
    return int(text)


def _parse_truth(key: str, values: Mapping[str, str]) -> bool | None:
    if key not in values:
        return None
    if values[key] not in _TRUTHS:
        raise InvalidParameters(f"{key} {values[key]!r} is neither true nor false")
    return _TRUTHS[values[key]]


def _parse_tolerations(text: str) -> tuple[matching.Toleration, ...]:
    """Return the tolerations in a text.

    Source: the form in which `kubectl taint` writes taints.
    """
    tolerations = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        rest, _, effect = part.partition(":")
        key, mark, value = rest.partition("=")
        if effect not in _EFFECTS:
            raise InvalidParameters(f"toleration {part!r} has an unknown effect: use NoSchedule or NoExecute")
        tolerations.append(
            matching.Toleration(key="" if key == "*" else key, value=value if mark else None, effect=effect)
        )
    return tuple(tolerations)


# v1alpha3.


class _AllocationParameters(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    api_version: str
    kind: str
    optional: bool | None = None
    tolerations: tuple[matching.Toleration, ...] = ()


def _read_requests(claim: classic.Claim, sources: Sources) -> ClaimRequests:
    if claim.unsupported:
        raise InvalidParameters(
            f"{', and '.join(claim.unsupported)}: a driver's controller cannot do that here; leave it out"
        )
    asked, nodes = [], []
    classes: dict[str, classic.Class] = {}
    for request in claim.requests:
        device_class = classes[request.class_name] = _class(request.class_name, claim, sources)
        allocation = _allocation_parameters((*device_class.config, *claim.config), request.name)
        asked.append(
            msgspec.structs.replace(
                allocation.request(request.name),
                count=request.count,
                selectors=(*device_class.selectors, *request.selectors),
            )
        )
        if device_class.suitable_nodes is not None:
            nodes.append(device_class.suitable_nodes)
    return ClaimRequests(
        requests=tuple(asked),
        suitable_nodes=tuple(nodes),
        config=_node_config(claim, classes, sources.driver),
    )


def _is_for_allocation(content: object) -> bool:
    return isinstance(content, dict) and content.get("kind") == device_parameters.ALLOCATION_KIND


def _allocation_parameters(config: tuple[classic.Opaque, ...], request: str) -> Parameters:
    """Return the AllocationParameters of one request; later ones add to earlier ones."""
    kind, version = device_parameters.ALLOCATION_KIND, device_parameters.API_VERSION
    result = Parameters()
    for opaque in config:
        if (opaque.requests and request not in opaque.requests) or not _is_for_allocation(opaque.parameters):
            continue
        try:
            content = msgspec.convert(opaque.parameters, _AllocationParameters)
        except msgspec.ValidationError as error:
            raise InvalidParameters(f"the {kind} cannot be read: {error}") from error
        if content.api_version != version:
            raise InvalidParameters(f"{kind} of {content.api_version} is not known: write {version}")
        result = result.narrow(Parameters(optional=content.optional, tolerations=content.tolerations))
    return result


def _node_config(
    claim: classic.Claim, classes: Mapping[str, classic.Class], driver: str
) -> tuple[claims.AllocatedConfiguration, ...]:
    """Return the node's parameters from classes and claim, as entries of the allocation, those of the classes first."""
    sources = [
        (device_parameters.Source.CLASS, _requests_of(claim, name), opaque)
        for name, device_class in classes.items()
        for opaque in device_class.config
    ]
    sources += [(device_parameters.Source.CLAIM, opaque.requests, opaque) for opaque in claim.config]
    config = tuple(
        claims.AllocatedConfiguration(
            source=source,
            requests=requests,
            opaque=claims.OpaqueConfiguration(driver=driver, parameters=opaque.parameters),
        )
        for source, requests, opaque in sources
        if not _is_for_allocation(opaque.parameters)
    )
    if len(config) > ENTRIES_MAX:
        raise InvalidParameters(
            f"it and its classes have {len(config)} entries of opaque parameters, and {ENTRIES_MAX} are the most: "
            f"join those that belong together"
        )
    # This reads them as the node will, with a device for each request.
    results = tuple(
        claims.AllocationResult(request=request.name, driver=driver, pool="", device=request.name)
        for request in claim.requests
    )
    allocation = claims.Allocation(devices=claims.DeviceAllocation(results=results, config=config))
    _, failure = configurations.try_by_device(allocation, driver)
    if failure is not None:
        raise InvalidParameters(failure.message)
    return config


def _requests_of(claim: classic.Claim, class_name: str) -> tuple[str, ...]:
    return tuple(request.name for request in claim.requests if request.class_name == class_name)
