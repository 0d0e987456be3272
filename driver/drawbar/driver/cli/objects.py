"""The objects of a command line: KIND/NAME or KIND NAME, with kubectl's plural and short names."""

import argparse
from collections.abc import Collection, Sequence

import msgspec

from drawbar.driver import errors

KINDS = {
    "fabric": ("fabric", "fabrics", "fab"),
    "enclosure": ("enclosure", "enclosures", "enc"),
    "device": ("device", "devices", "dev"),
    "attachment": ("attachment", "attachments", "deviceattachment", "deviceattachments", "da"),
    "node": ("node", "nodes", "no"),
    "claim": ("claim", "claims", "resourceclaim", "resourceclaims"),
    "pod": ("pod", "pods", "po"),
}
"""Each kind that most verbs accept, with its possible names."""
SPECIAL_KINDS = {
    "host": ("host", "hosts"),
    "rule": ("rule", "rules", "devicetaintrule", "devicetaintrules"),
}
"""The kinds that only some verbs accept."""
_KIND_OF = {name: kind for kind, names in (KINDS | SPECIAL_KINDS).items() for name in names}
NAMESPACED = frozenset({"claim", "pod"})


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """An object, or the whole cluster if the kind is empty.

    Attributes:
        kind: one of `KINDS`.
        name: the object's name; `FABRIC/ENCLOSURE` for an enclosure, with or without its pool in front for a device.
        namespace: the namespace of a claim or pod.
    """

    kind: str = ""
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


def find_kind(word: str) -> str:
    """Return the kind that has this name, or nothing."""
    return _KIND_OF.get(word.lower(), "")


class Missing(errors.DrawbarError):
    """There is no object of that name."""


class TargetAction(argparse.Action):
    """The words of a command line that name objects of these kinds.

    Attributes:
        kinds: the kinds that the verb accepts, for completion.
    """

    kinds: Collection[str] = ()

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 - argparse passes it
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,  # noqa: ARG002 - argparse passes it
    ) -> None:
        """Store the words."""
        setattr(namespace, self.dest, values)


def add_target(
    parser: argparse.ArgumentParser,
    kinds: Collection[str] = tuple(KINDS),
    *,
    help_text: str,
    metavar: str = "KIND/NAME",
    is_required: bool = False,
) -> None:
    """Add the arguments that name an object of one of these kinds."""
    action = parser.add_argument(
        "target",
        metavar=metavar,
        nargs="+" if is_required else "*",
        action=TargetAction,
        help=f"{help_text}: {', '.join(kinds)}",
    )
    assert isinstance(action, TargetAction)
    action.kinds = kinds


def parse(
    words: Sequence[str],
    namespace: str,
    kinds: Collection[str] = tuple(KINDS),
    *,
    default: str = "",
    hints: dict[str, str] | None = None,
) -> Target:
    """Return the object that the words name, or the whole cluster if there are none.

    Args:
        words: KIND/NAME, or KIND and NAME.
        namespace: the namespace of a claim or pod.
        kinds: the kinds that the verb accepts.
        default: the kind of a name without a kind.
        hints: for other kinds, the command to use in place of this one.

    Raises:
        errors.UsageError: the words name no object of these kinds.
    """
    if not words:
        return Target(namespace=namespace)
    target, rest = take(words, namespace, kinds, default=default, hints=hints)
    if rest:
        raise errors.UsageError(f"name one object, not {len(words)} words: {' '.join(words)}")
    return target


def take(
    words: Sequence[str],
    namespace: str,
    kinds: Collection[str],
    *,
    default: str = "",
    hints: dict[str, str] | None = None,
) -> tuple[Target, Sequence[str]]:
    """Return the object that the first words name, and the other words; see `parse` for the rest.

    Raises:
        errors.UsageError: the words name no object of these kinds.
    """
    kind, slash, name = words[0].partition("/")
    rest = words[1:]
    if not slash and rest and (kind.lower() in _KIND_OF or not default):
        name, rest = words[1], words[2:]
    elif default and not (slash and kind.lower() in _KIND_OF):
        kind, name = default, words[0]
    known = _KIND_OF.get(kind.lower())
    if known is None:
        raise errors.UsageError(f"there is no kind {kind!r}: use KIND/NAME with {', '.join(kinds)}")
    if known not in kinds:
        hint = (hints or {}).get(known, f"it takes {', '.join(kinds)}")
        raise errors.UsageError(f"this verb takes no {known}: {hint}")
    if not name:
        raise errors.UsageError(f"the name is missing: {known}/NAME")
    if known in NAMESPACED and "/" in name:
        inside, _, name = name.partition("/")
        if not inside or not name or "/" in name:
            raise errors.UsageError(
                f"{words[0]!r} names no {known}: use {known}/NAME or {known}/NAMESPACE/NAME"
            )
        return Target(kind=known, name=name, namespace=inside), rest
    return Target(kind=known, name=name, namespace=namespace), rest
