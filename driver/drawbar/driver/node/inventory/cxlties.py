"""What hangs together on the CXL bus, judged from values alone.

A region is carved out of the decoders of all ports between the root and its memory devices, and none of these has an
event when that happens; nor has a port when one of its decoders is committed.
"""

from collections.abc import Iterable, Mapping

from drawbar.driver.node.inventory import cxl, model


def related(each: cxl.Object, known: Mapping[str, cxl.Object]) -> frozenset[str]:
    """The names of objects that may have changed together with this one.

    Args:
        each: as it is or was.
        known: every object by name.
    """
    match each:
        case model.Region():
            return frozenset(_decoders(each, known)) | _upwards(each, known)
        case model.Decoder():
            regions = {other.name for other in known.values() if _is_of(other, each)}
            return frozenset(regions | ({each.port} if each.port is not None else set()))
        case _:
            return frozenset()


def functions_of(each: cxl.Object, known: Mapping[str, cxl.Object]) -> frozenset[str]:
    """The addresses of the functions whose memory this object is about."""
    match each:
        case model.Memdev():
            return frozenset({each.pci_address} if each.pci_address is not None else ())
        case model.Region():
            return frozenset(_behind(each.targets, known))
        case model.Decoder():
            return frozenset(_behind((each.name,), known))
        case model.Port():
            memdev = known.get(each.uport or "")
            return functions_of(memdev, known) if isinstance(memdev, model.Memdev) else frozenset()


def _decoders(region: model.Region, known: Mapping[str, cxl.Object]) -> Iterable[str]:
    yield from region.targets
    for other in known.values():
        if isinstance(other, model.Decoder) and other.region == region.name:
            yield other.name


def _upwards(region: model.Region, known: Mapping[str, cxl.Object]) -> set[str]:
    """The ports above the region's memory, and their decoders."""
    ports = set()
    for target in region.targets:
        decoder = known.get(target)
        name = decoder.port if isinstance(decoder, model.Decoder) else None
        while name is not None and name not in ports:
            port = known.get(name)
            ports.add(name)
            name = port.parent if isinstance(port, model.Port) else None
    decoders = {
        other.name for other in known.values() if isinstance(other, model.Decoder) and other.port in ports
    }
    return ports | decoders


def _is_of(other: cxl.Object, decoder: model.Decoder) -> bool:
    """Whether `other` is a region that the decoder belongs to."""
    return isinstance(other, model.Region) and (other.name == decoder.region or decoder.name in other.targets)


def _behind(decoders: Iterable[str], known: Mapping[str, cxl.Object]) -> set[str]:
    found: set[str] = set()
    for name in decoders:
        decoder = known.get(name)
        port = known.get(decoder.port or "") if isinstance(decoder, model.Decoder) else None
        if isinstance(port, model.Port):
            found |= functions_of(port, known)
    return found
