"""All quirks, and the path of a request through those of a service."""

import functools
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from drawbar.mocks.redfish.configuration import Configuration
from drawbar.mocks.redfish.exchange import Answer, Asked
from drawbar.mocks.redfish.quirks import changes, etags, forms, members, parts, refusals, sessions, uris
from drawbar.mocks.redfish.quirks.quirk import Forward, Quirk, Setting, form

# From the resources to the connection: the encoding of an answer comes last, in any order of the named quirks.
_ORDERED = (
    *parts.QUIRKS,
    *etags.QUIRKS,
    *members.QUIRKS,
    *changes.QUIRKS,
    *sessions.QUIRKS,
    *refusals.QUIRKS,
    *uris.QUIRKS,
    *forms.QUIRKS,
)
QUIRKS: Mapping[str, Quirk] = MappingProxyType({quirk.name: quirk for quirk in _ORDERED})
# Pairs that leave no URI of the service root.
CONTRADICTORY = (
    frozenset({"root-redirect", "root-with-slash"}),
    frozenset({"root-redirect", "slashes"}),
)


def choose(names: Iterable[str], configuration: Configuration) -> tuple[Quirk, ...]:
    """Return the quirks of these names, in the order in which an answer passes them.

    Raises:
        ValueError: a name is unknown, the form of the service cannot have the quirk, or two quirks exclude each other.
    """
    wanted, own = frozenset(names), form(configuration)
    if unknown := wanted - QUIRKS.keys():
        raise ValueError(f'the quirk "{min(unknown)}" is unknown; there are {", ".join(sorted(QUIRKS))}')
    for pair in CONTRADICTORY:
        if wanted >= pair:
            raise ValueError(
                f"the quirks {' and '.join(sorted(pair))} leave no service root; name one of them"
            )
    for quirk in (QUIRKS[name] for name in sorted(wanted)):
        if own not in quirk.forms:
            raise ValueError(
                f'the quirk "{quirk.name}" is of the forms {", ".join(sorted(quirk.forms))}, and the service has the form {own}'
            )
    return tuple(quirk for quirk in QUIRKS.values() if quirk.name in wanted)


async def exchange(asked: Asked, serve: Forward, quirks: Iterable[Quirk], setting: Setting) -> Answer:
    """Return the answer to a request through the quirks, the first of which is next to the service."""
    forward = serve
    for quirk in quirks:
        forward = functools.partial(_pass, quirk, forward, setting)
    return await forward(asked)


async def _pass(quirk: Quirk, forward: Forward, setting: Setting, asked: Asked) -> Answer:
    return await quirk.wrap(asked, forward, setting)
