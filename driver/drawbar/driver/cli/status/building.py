"""The tree of a cluster, built from its objects; pure.

A device is in the tree if a slice publishes it, a DeviceAttachment holds it or a claim has it. So no device in use is
missing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from drawbar.driver import naturalorder
from drawbar.driver.api import bindings, leftout, nodepools, slices, taintrules
from drawbar.driver.cli.status import claim_entries, device_entries, fabric_entries, observed, tree


def build(cluster: observed.Cluster) -> tree.Tree:
    """Return the tree of the cluster."""
    facts = device_entries.gather_facts(cluster)
    rules = _Rules(cluster.rules, cluster.driver)
    by_fabric: dict[str, dict[str, list[tree.Device]]] = defaultdict(lambda: defaultdict(list))
    by_node: dict[str, list[tree.Device]] = defaultdict(list)
    for key, fact in sorted(
        facts.items(),
        key=lambda entry: (naturalorder.sort_key(entry[0].pool), naturalorder.sort_key(entry[0].device)),
    ):
        fabric, enclosure = device_entries.locate(key, fact)
        device = device_entries.describe_device(
            key,
            fact,
            is_local=not fabric,
            driver=cluster.driver,
            rules=rules.find_taints(key),
            are_attachments_known="deviceattachments" not in cluster.unlisted,
        )
        if fabric:
            by_fabric[fabric][enclosure].append(device)
        else:
            by_node[device.node].append(device)
    left_out = _group_left_out(cluster.slices, cluster.driver)
    objects = {
        fabric.metadata.name: fabric for fabric in cluster.fabrics if fabric.spec.driver == cluster.driver
    }
    return tree.Tree(
        fabrics=tuple(
            fabric_entries.describe_fabric(
                name, objects.get(name), by_fabric.get(name, {}), is_listed="fabrics" not in cluster.unlisted
            )
            for name in sorted(objects.keys() | by_fabric.keys(), key=naturalorder.sort_key)
        ),
        local=tuple(
            tree.Local(node=node, devices=tuple(by_node.get(node, ())), left_out=left_out.get(node, ()))
            for node in sorted(by_node.keys() | left_out.keys(), key=naturalorder.sort_key)
        ),
        claims=claim_entries.list_claims(cluster),
        unread=cluster.unread,
    )


class _Rules:
    """The taints that DeviceTaintRules set on the devices of one driver.

    Rules that select by class or expression (up to Kubernetes 1.34) are not evaluated.
    """

    def __init__(self, listed: Iterable[taintrules.DeviceTaintRule], driver: str) -> None:
        self._driver = driver
        self._rules = [
            rule
            for rule in listed
            if rule.spec.device_selector is not None
            and rule.spec.device_selector.is_computable
            and rule.spec.device_selector.driver in (None, driver)
        ]

    def find_taints(self, key: bindings.Key) -> tuple[tree.Taint, ...]:
        """Return the taints of a device."""
        return tuple(
            tree.Taint(
                key=rule.spec.taint.key,
                value=rule.spec.taint.value or "",
                effect=rule.spec.taint.effect,
                rule=rule.metadata.name,
            )
            for rule in self._rules
            if rule.spec.device_selector is not None
            and rule.spec.device_selector.selects(self._driver, key.pool, key.device)
        )


def _group_left_out(
    listed: Iterable[slices.ResourceSlice], driver: str
) -> Mapping[str, tuple[tree.LeftOut, ...]]:
    """Return, by node, the devices that its daemon leaves to other components."""
    notes = {
        entry.spec.node_name: leftout.decode(entry.metadata.annotations.get(leftout.ANNOTATION, ""))
        for entry in sorted(listed, key=lambda entry: entry.spec.pool.generation)
        if entry.spec.driver == driver
        and entry.spec.node_name
        and entry.spec.pool.name == nodepools.pool(entry.spec.node_name)
    }
    return {
        node: tuple(tree.LeftOut(name=each.device, reason=each.reason) for each in devices)
        for node, devices in notes.items()
        if devices
    }
