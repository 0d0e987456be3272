"""The processes of the host with open files of the node's devices.

A file of a whole driver, such as /dev/kfd, proves nothing about one device. Neither do the vendors' monitors, which keep
each device open all the time.

NVIDIA's driver has no files in sysfs. While it does not show a GPU's file, the GPU counts as open.

A host without any process in its /proc is a mocked one. A daemon that sees only its own pod cannot tell, so each of its
devices with a file counts as open.
"""

from collections import Counter
from collections.abc import Iterable

from drawbar.driver.node.classes import users
from drawbar.driver.node.inventory import model, nvidia

MONITORS = frozenset(
    {
        "drawbar",
        "nvidia-persiste",
        "nv-hostengine",
        "dcgm-exporter",
        "nv-fabricmanage",
        "amd-smi",
        "rdc",
        "rdcd",
        "xpumd",
        "smartd",
    }
)
"""The monitors, by the first 15 characters of their names, as in /proc/PID/comm."""
_OF_DRIVERS = frozenset(
    {
        "/dev/kfd",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia-modeset",
        "/dev/vfio/vfio",
        "/dev/infiniband/rdma_cm",
    }
)


def find_openers(host: users.Host, cards: Iterable[model.Card]) -> dict[str, str]:
    """Return the process that has a card open, or why that is unknown, by the card's address; other cards are absent.

    Args:
        host: its processes.
        cards: the cards.
    """
    if not users.processes(host.proc):
        return {}
    by_card, unknown = {}, {}
    for card in cards:
        bound = [function for function in card.functions if function.driver == nvidia.DRIVER]
        if bound and not any(map(nvidia.is_shown, bound)):
            unknown[card.address] = _unknown(
                "its driver does not show its device file in /proc/driver/nvidia"
            )
        nodes = [node for node in card.device_nodes if node.path not in _OF_DRIVERS]
        by_card[card.address] = users.index_files(host, nodes)
    counted = Counter(numbers for nodes in by_card.values() for numbers in nodes)
    wanted = {
        numbers: path
        for nodes in by_card.values()
        for numbers, path in nodes.items()
        if counted[numbers] == 1
    }
    if not wanted:
        return unknown
    blind = users.blindness(host.proc)
    if blind is not None:
        return unknown | {
            address: _unknown(blind)
            for address, nodes in by_card.items()
            if not wanted.keys().isdisjoint(nodes)
        }
    openers = users.find_first_openers(host.proc, wanted, MONITORS)
    return unknown | {
        address: next(openers[numbers] for numbers in nodes if numbers in openers)
        for address, nodes in by_card.items()
        if not openers.keys().isdisjoint(nodes)
    }


def _unknown(reason: str) -> str:
    return f"whether a process has it open is unknown: {reason}"
