"""The healthy share of each pool and class."""

from collections import Counter
from collections.abc import Iterable

from drawbar.driver.api import healthpolicies, taintrules
from drawbar.driver.healthmonitor.inventory import Device, Inventory
from drawbar.driver.slices import encoding


class Shares:
    """The devices of each pool and class, and which of them are tainted."""

    def __init__(self, devices: Inventory, rules: Iterable[taintrules.DeviceTaintRule]) -> None:
        self._devices = devices
        self._all = Counter(group for device in devices.devices for group in self._groups(device))
        self._tainted: set[Device] = set()
        self._count = Counter[tuple[str, str]]()
        self._effective: set[Device] = {
            device for device, published in devices.devices.items() if published.tainted
        }
        counted = set(self._effective)
        for rule in rules:
            keeps_away = encoding.keeps_away([rule.spec.taint])
            if not keeps_away and healthpolicies.MONITOR_LABEL not in rule.metadata.labels:
                continue
            selected = self._selected(rule)
            counted |= selected
            if keeps_away:
                self._effective |= selected
        for device in counted:
            self.add(device)

    def add(self, device: Device) -> None:
        """Count a device as tainted."""
        if device not in self._tainted and device in self._devices.devices:
            self._tainted.add(device)
            self._count.update(self._groups(device))

    def leaves(self, device: Device, percent: int) -> bool:
        """Return whether enough devices of the pool and of the class are free of taints when this one is tainted."""
        if device in self._effective:
            # It is kept away from claims in any case.
            return True
        new = device not in self._tainted
        return all(
            (self._all[group] - self._count[group] - new) * 100 >= self._all[group] * percent
            for group in self._groups(device)
        )

    def _groups(self, device: Device) -> list[tuple[str, str]]:
        name = self._devices.devices[device].attributes.get("class")
        return [("pool", device.pool)] + ([("class", name)] if name is not None else [])

    def _selected(self, rule: taintrules.DeviceTaintRule) -> set[Device]:
        """Return the devices of a rule; of one with expressions all that it may select."""
        selector = rule.spec.device_selector
        if selector is None:
            return set()
        if selector.driver is not None and selector.pool is not None and selector.device is not None:
            device = Device(selector.driver, selector.pool, selector.device)
            return {device} & self._devices.devices.keys()
        return {device for device in self._devices.devices if selector.selects(*device)}
