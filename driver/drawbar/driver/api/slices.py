"""ResourceSlices that Drawbar publishes.

Source: `resource.k8s.io/v1` ResourceSlice. Every written field is named here, since our own slices are compared and
replaced whole.
"""

import re
from collections.abc import Iterable
from typing import Any, assert_never

import msgspec

from drawbar.driver.api import claims, meta
from drawbar.fabric import attributes


class Attribute(meta.Struct, frozen=True):
    """One value; exactly one of the fields is set."""

    string: str | None = None
    int_: int | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    version: str | None = None

    @classmethod
    def from_value(cls, value: attributes.Value) -> "Attribute":
        """Return the attribute with a value of its type."""
        match value:
            case bool():
                return cls(bool_=value)
            case int():
                return cls(int_=value)
            case attributes.Version(text=text):
                return cls(version=text)
            case str():
                return cls(string=value)
            case _:
                assert_never(value)

    @property
    def value(self) -> attributes.Value | None:
        """Return the value, or None if the attribute has none."""
        if self.version is not None:
            return attributes.Version(self.version)
        return next((each for each in (self.string, self.bool_, self.int_) if each is not None), None)


class ValidRange(meta.Struct, frozen=True):
    """The valid requests of a capacity, as quantities: from `min` in steps, up to `max` if there is one."""

    min: str
    max: str | None = None
    step: str | None = None


class RequestPolicy(meta.Struct, frozen=True):
    """The amount of a capacity for a share; `default` if its claim names no amount."""

    default: str
    valid_range: ValidRange


class Capacity(meta.Struct, frozen=True):
    """An amount as a Kubernetes quantity.

    Attributes:
        request_policy: of a device that is given in shares.
    """

    value: str
    request_policy: RequestPolicy | None = None


LABEL_VALUE_CHARS = 63
_NOT_IN_LABEL_VALUE = re.compile(r"[^A-Za-z0-9_.-]")


def label_value(text: str) -> str:
    """Return the text as the value of a label, which the value of a taint has to be; unchanged if it is one."""
    return _NOT_IN_LABEL_VALUE.sub("-", text)[:LABEL_VALUE_CHARS].strip("-_.")


class Taint(meta.Struct, frozen=True):
    """A reason not to give a device out, or to take it back.

    Attributes:
        description: for people, at most 1 KiB; in no release up to 1.37, like the next two.
        data: for programs, at most 10 KiB.
        evictions_per_second: the most pods to evict because of it.
    """

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None
    description: str = ""
    data: dict[str, Any] | None = None
    evictions_per_second: int | None = None

    @property
    def identity(self) -> tuple[str, str, str]:
        """Return key, value and effect: taints with the same three are the same taint, whenever they were added."""
        return self.key, self.value, self.effect


class Device(meta.Struct, frozen=True):
    """One published device."""

    name: str
    attributes: dict[str, Attribute] = {}
    capacity: dict[str, Capacity] = {}
    binds_to_node: bool | None = None
    allow_multiple_allocations: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    taints: tuple[Taint, ...] = ()


class SliceTaint(meta.Struct, frozen=True):
    """A taint of one device of the pool, in a slice that holds taints and no devices; KEP-5055."""

    device: str
    taint: Taint


class Pool(meta.Struct, frozen=True):
    """The pool of a slice."""

    name: str
    generation: int
    resource_slice_count: int


class SliceSpec(meta.Struct, frozen=True):
    """The content of a slice."""

    driver: str
    pool: Pool
    node_name: str | None = None
    node_selector: claims.NodeSelector | None = None
    devices: tuple[Device, ...] = ()
    taints: tuple[SliceTaint, ...] = ()


class ResourceSlice(meta.Struct, frozen=True):
    """A published slice."""

    metadata: meta.ObjectMeta
    spec: SliceSpec


def document(published: ResourceSlice) -> dict[str, Any]:
    """Return the whole object for a create or a replace."""
    content = msgspec.to_builtins(published)
    assert isinstance(content, dict)
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"} | content


def newest(listed: Iterable[ResourceSlice]) -> tuple[ResourceSlice, ...]:
    """Return the slices of each pool's newest generation."""
    every, generations = tuple(listed), dict[tuple[str, str], int]()
    for item in every:
        pool = (item.spec.driver, item.spec.pool.name)
        generations[pool] = max(generations.get(pool, 0), item.spec.pool.generation)
    return tuple(
        item
        for item in every
        if item.spec.pool.generation == generations[item.spec.driver, item.spec.pool.name]
    )
