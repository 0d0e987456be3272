"""Which pool a device belongs to, decided purely.

Invariant: a device never changes its pool while it is published, wherever others come and go.
"""

from drawbar.driver.api import slices
from drawbar.driver.controller import names
from drawbar.fabric import contract

# Any taint halves the API's limit of 128 devices in a slice.
DEVICES_MAX = 64


def pools(
    fabric: str, found: tuple[contract.Device, ...], published: tuple[slices.ResourceSlice, ...]
) -> dict[str, str]:
    """The pool of each device by its name: where it is published, else the first of its enclosure with room."""
    enclosures = {names.label(device.id): device.enclosure for device in found}
    homes: dict[str, str] = {}
    filled: dict[str, int] = {}
    for one in published:
        for device in one.spec.devices:
            enclosure = enclosures.get(device.name)
            if enclosure is None or not _belongs(one.spec.pool.name, names.pool(fabric, enclosure)):
                continue
            homes[device.name] = one.spec.pool.name
            filled[one.spec.pool.name] = filled.get(one.spec.pool.name, 0) + 1
    for name in sorted(enclosures.keys() - homes.keys()):
        partition = 0
        while filled.get(pool := names.pool(fabric, enclosures[name], partition), 0) >= DEVICES_MAX:
            partition += 1
        homes[name] = pool
        filled[pool] = filled.get(pool, 0) + 1
    return homes


def _belongs(pool: str, first: str) -> bool:
    return pool == first or (pool.startswith(f"{first}/") and pool[len(first) + 1 :].isdigit())
