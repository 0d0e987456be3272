"""Parameters of classes and claims that only this driver understands, read strictly; pure.

With v1alpha2 they are the data of a ConfigMap that a `parametersRef` names, all values text:

| key | value | meaning |
|---|---|---|
| `deviceClass` | `gpu`, `nvme`, ... | the class of the device |
| `model` | text | its model, as the fabric manager tells it |
| `selector` | a CEL expression | as in a DeviceClass of v1 |
| `count` | a whole number | how many devices; 1 where nothing is said |
| `optional` | `true`, `false` | content with none where none is left |
| `shareable` | `true`, `false` | several pods may use it at a time |
| `tolerations` | `key[=value][:effect]`, with commas; `*` is any key | taints that it puts up with |

With v1alpha3 a claim says most of that itself; the rest, `optional` and `tolerations`, is an object of the kind
`AllocationParameters` among its opaque parameters. Other kinds there are for the kubelet plugin.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from drawbar.driver.api import classic, parameters
from drawbar.driver.controller.allocation import requests
from drawbar.fabric import contract

# Of one claim; `resource.k8s.io` allows as many results.
COUNT_MAX = 32
COUNT_CHARS = 2
CLASSES = frozenset(one.value for one in contract.DeviceClass)
_TRUTHS = {"true": True, "false": False}
_EFFECTS = frozenset({requests.ANY, "NoSchedule", "NoExecute"})
_KEYS = frozenset({"deviceClass", "model", "selector", "count", "optional", "shareable", "tolerations"})


class Wrong(Exception):
    """Parameters that nobody can obey; the message is a clause with the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What was said; None or empty for what was not."""

    device_class: str = requests.ANY
    model: str = requests.ANY
    selectors: tuple[str, ...] = ()
    count: int | None = None
    optional: bool | None = None
    shareable: bool | None = None
    tolerations: tuple[requests.Toleration, ...] = ()

    def narrowed(self, claim: "Parameters") -> "Parameters":
        """A class's parameters with those of a claim, which may say more but nothing against them.

        Raises:
            Wrong: it does.
        """
        for name, mine, theirs in (
            ("deviceClass", self.device_class, claim.device_class),
            ("model", self.model, claim.model),
        ):
            if mine and theirs and mine != theirs:
                raise Wrong(f"the claim asks for {name} {theirs}, and its class gives {mine} alone")
        return Parameters(
            device_class=self.device_class or claim.device_class,
            model=self.model or claim.model,
            selectors=(*self.selectors, *claim.selectors),
            count=claim.count if claim.count is not None else self.count,
            optional=claim.optional if claim.optional is not None else self.optional,
            shareable=claim.shareable if claim.shareable is not None else self.shareable,
            tolerations=(*self.tolerations, *claim.tolerations),
        )

    def request(self, name: str) -> requests.Request:
        """As one request."""
        return requests.Request(
            name=name,
            count=self.count if self.count is not None else 1,
            device_class=self.device_class,
            model=self.model,
            selectors=self.selectors,
            tolerations=self.tolerations,
            optional=bool(self.optional),
        )


NOTHING = Parameters()


def of_data(data: Mapping[str, str]) -> Parameters:
    """The parameters in a ConfigMap.

    Raises:
        Wrong: a key is unknown, or a value cannot be.
    """
    unknown = sorted(data.keys() - _KEYS)
    if unknown:
        raise Wrong(f"{unknown[0]!r} is no parameter: known are {', '.join(sorted(_KEYS))}")
    said = {key: text.strip() for key, text in data.items()}
    device_class = said.get("deviceClass", requests.ANY)
    if device_class and device_class not in CLASSES:
        raise Wrong(f"deviceClass {device_class!r} is none: known are {', '.join(sorted(CLASSES))}")
    return Parameters(
        device_class=device_class,
        model=said.get("model", requests.ANY),
        selectors=(said["selector"],) if said.get("selector") else (),
        count=_count(said["count"]) if "count" in said else None,
        optional=_truth("optional", said),
        shareable=_truth("shareable", said),
        tolerations=_tolerations(said.get("tolerations", "")),
    )


def by_name(class_name: str) -> Parameters:
    """What a class without parameters stands for: the class of devices that its name begins with, if it does."""
    first = class_name.partition(".")[0]
    return Parameters(device_class=first) if first in CLASSES else NOTHING


class _Toleration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str = ""
    value: str | None = None
    effect: str = ""


class _Object(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    api_version: str
    kind: str
    optional: bool | None = None
    tolerations: tuple[_Toleration, ...] = ()


def of_opaque(config: tuple[classic.Opaque, ...], request: str) -> Parameters:
    """What opaque parameters say of one request; later ones add to earlier ones.

    Raises:
        Wrong: an object of our kind cannot be read.
    """
    found = NOTHING
    for one in config:
        content = one.parameters
        if one.requests and request not in one.requests:
            continue
        if not isinstance(content, dict) or content.get("kind") != parameters.ALLOCATION_KIND:
            continue
        try:
            said = msgspec.convert(content, _Object)
        except msgspec.ValidationError as error:
            raise Wrong(f"the {parameters.ALLOCATION_KIND} cannot be read: {error}") from error
        if said.api_version != parameters.API_VERSION:
            kind, version = parameters.ALLOCATION_KIND, parameters.API_VERSION
            raise Wrong(f"{kind} of {said.api_version} is not known: write {version}")
        tolerations = tuple(
            requests.Toleration(key=each.key, value=each.value, effect=each.effect)
            for each in said.tolerations
        )
        found = found.narrowed(Parameters(optional=said.optional, tolerations=tolerations))
    return found


def _count(text: str) -> int:
    # Python reads no number of more than 4,300 digits.
    if len(text) > COUNT_CHARS or not text.isdecimal() or not 1 <= int(text) <= COUNT_MAX:
        raise Wrong(f"count {text[: parameters.SHOWN_CHARS]!r} is no whole number from 1 to {COUNT_MAX}")
    return int(text)


def _truth(key: str, said: Mapping[str, str]) -> bool | None:
    if key not in said:
        return None
    if said[key] not in _TRUTHS:
        raise Wrong(f"{key} {said[key]!r} is neither true nor false")
    return _TRUTHS[said[key]]


def _tolerations(text: str) -> tuple[requests.Toleration, ...]:
    """Source: the form in which `kubectl taint` writes taints."""
    found = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        rest, _, effect = part.partition(":")
        key, mark, value = rest.partition("=")
        if effect not in _EFFECTS:
            raise Wrong(f"toleration {part!r} has an effect that is none: NoSchedule and NoExecute are")
        found.append(
            requests.Toleration(key="" if key == "*" else key, value=value if mark else None, effect=effect)
        )
    return tuple(found)
