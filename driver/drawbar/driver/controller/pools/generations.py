"""The slices of one pool, and when their readers need a new generation; pure.

One slice that changes in place leaves the pool whole for every reader. Where more change, or one is new, a new
generation tells the readers which belong together: until all of it is written they give out nothing of the pool.

Source: ResourcePool of `resource.k8s.io/v1`; KEP-5055 on changes of taints.
"""

from collections.abc import Iterable

import msgspec

from drawbar.driver.api import claims, drivers, meta, slices
from drawbar.driver.controller import names
from drawbar.driver.slices import encoding

FABRIC_LABEL = "drawbar.dev/fabric"


def slices_of(
    driver: str, fabric: str, pool: str, content: encoding.Content, published: Iterable[slices.ResourceSlice]
) -> tuple[slices.ResourceSlice, ...]:
    """The slices as they should be, each with the metadata of the one that it replaces, if there is one."""
    actual = {one.metadata.name: one for one in published if one.spec.pool.name == pool}
    parts = _parts(driver, fabric, pool, content)
    generation = max((one.spec.pool.generation for one in actual.values()), default=1)
    built = _built(fabric, pool, parts, actual, generation)
    changed = [
        one for one in built if one.metadata.name not in actual or actual[one.metadata.name].spec != one.spec
    ]
    is_new = any(one.metadata.name not in actual for one in changed)
    if actual and (len(changed) > 1 or is_new):
        return _built(fabric, pool, parts, actual, generation + 1)
    return built


def _parts(driver: str, fabric: str, pool: str, content: encoding.Content) -> dict[str, slices.SliceSpec]:
    """By the name of the slice what it holds; generation and count come later."""
    reached = (drivers.label_value(driver),)
    requirements = [claims.FieldRequirement(key=names.node_label(fabric), operator="In", values=reached)]
    closed = names.closed_label_of(pool)
    if closed is not None:
        requirements.append(claims.FieldRequirement(key=closed, operator="DoesNotExist"))
    empty = slices.SliceSpec(
        driver=driver,
        pool=slices.Pool(name=pool, generation=0, resource_slice_count=0),
        node_selector=claims.NodeSelector(
            node_selector_terms=(claims.NodeSelectorTerm(match_expressions=tuple(requirements)),)
        ),
    )
    parts = {names.resource_slice(driver, pool): msgspec.structs.replace(empty, devices=content.devices)}
    if content.taints is not None:
        parts[names.taint_slice(driver, pool)] = msgspec.structs.replace(empty, taints=content.taints)
    return parts


def _built(
    fabric: str,
    pool: str,
    parts: dict[str, slices.SliceSpec],
    actual: dict[str, slices.ResourceSlice],
    generation: int,
) -> tuple[slices.ResourceSlice, ...]:
    membership = slices.Pool(name=pool, generation=generation, resource_slice_count=len(parts))
    return tuple(
        slices.ResourceSlice(
            metadata=actual[name].metadata
            if name in actual
            else meta.ObjectMeta(name=name, labels={FABRIC_LABEL: fabric}),
            spec=msgspec.structs.replace(spec, pool=membership),
        )
        for name, spec in parts.items()
    )
