"""FPGA managers: Documentation/ABI/testing/sysfs-class-fpga-manager.

Their class lists them all; on a DFL card a manager is six directories below its function, too deep to walk to.
"""

from collections.abc import Iterable

from drawbar.driver.node.inventory import children, files, model


def paths(root: str) -> dict[str, tuple[str, ...]]:
    """The directories of all FPGA managers, below the root, by the function that they are nearest to."""
    found: dict[str, tuple[str, ...]] = {}
    for name in files.names(f"{root}/class/fpga_manager"):
        relative = files.below_root(files.link_target(f"{root}/class/fpga_manager/{name}") or "")
        above = [part for part in relative.split("/") if children.ADDRESS.fullmatch(part)]
        if above:
            found[above[-1]] = (*found.get(above[-1], ()), relative)
    return found


def read(root: str, managers: Iterable[str]) -> tuple[model.FpgaManager, ...]:
    """The managers in these directories."""
    return tuple(
        model.FpgaManager(
            name=relative.rpartition("/")[2],
            path=relative,
            title=files.text(f"{root}/{relative}/name") or None,
            state=files.text(f"{root}/{relative}/state") or None,
        )
        for relative in managers
    )
