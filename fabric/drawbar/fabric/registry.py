"""The adapters that are installed, found through the entry point group `drawbar.fabric_adapters`.

A vendor's package adds one line to its metadata and is found; nothing is imported until it is asked for.
"""

from importlib import metadata

from drawbar.fabric import contract, errors

GROUP = "drawbar.fabric_adapters"


def adapter_names() -> tuple[str, ...]:
    """Return the names of all installed adapters, sorted."""
    return tuple(sorted({point.name for point in metadata.entry_points(group=GROUP)}))


def adapter_class(name: str) -> type[contract.FabricAdapter]:
    """Return the adapter with that name.

    Raises:
        InvalidConfiguration: there is no such adapter (the sentence lists the installed ones), or its package is
            broken.
    """
    points = sorted(metadata.entry_points(group=GROUP, name=name), key=lambda point: point.value)
    if not points:
        installed = ", ".join(adapter_names()) or "none"
        remedy = "give one of these, or install the package of its vendor"
        raise errors.InvalidConfiguration(
            [f'unknown fabric adapter "{name}"; installed adapters: {installed}; {remedy}']
        )
    point = points[0]
    try:
        loaded = point.load()
    except (ImportError, AttributeError) as error:
        raise errors.InvalidConfiguration(
            [f'the fabric adapter "{name}" ({point.value}) cannot be loaded: {error}; reinstall its package']
        ) from error
    if not (isinstance(loaded, type) and issubclass(loaded, contract.FabricAdapter)):
        raise errors.InvalidConfiguration(
            [f'the fabric adapter "{name}" ({point.value}) is not a FabricAdapter; tell its vendor']
        )
    return loaded
