"""Label selectors of `-l`, for objects that are selected here and not by the API server; pure.

Source: Kubernetes, "Labels and Selectors". Equality (`a=b`, `a==b`, `a!=b`), sets (`a in (b,c)`, `a notin (b,c)`) and
existence (`a`, `!a`) are understood.
"""

import argparse
import re
from collections.abc import Mapping

import msgspec

_KEY = r"[A-Za-z0-9](?:[\w./-]*[A-Za-z0-9])?"
_TERMS = re.compile(r",(?![^()]*\))")
_TERM = re.compile(
    rf"(?P<absent>!?)\s*(?P<key>{_KEY})\s*(?:(?P<sign>==?|!=)\s*(?P<value>[^=!,()]*?)|(?P<set>\s(?:in|notin))\s*\((?P<values>[^()]*)\))?"
)


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """A condition on one label.

    Attributes:
        key: the label.
        values: the matching values; None for any.
        is_negated: whether the condition holds where the rest does not; an absent label counts as another value.
    """

    key: str
    values: frozenset[str] | None
    is_negated: bool

    def matches(self, labels: Mapping[str, object]) -> bool:
        """Return whether an object with these labels is selected."""
        value = labels.get(self.key)
        is_met = value is not None and (self.values is None or str(value) in self.values)
        return is_met != self.is_negated


Selector = tuple[Term, ...]
"""Conditions that must all hold; empty for every object."""


def matches(selector: Selector, labels: Mapping[str, object]) -> bool:
    """Return whether an object with these labels is selected."""
    return all(term.matches(labels) for term in selector)


def parse(content: str) -> Selector:
    """Return the selector.

    Raises:
        argparse.ArgumentTypeError: it is no selector.
    """
    return tuple(_term(part.strip()) for part in _TERMS.split(content)) if content.strip() else ()


def _term(content: str) -> Term:
    found = _TERM.fullmatch(content)
    if found is None or (found["absent"] and (found["sign"] or found["set"])):
        raise argparse.ArgumentTypeError(
            f"{content!r} is not a selector: use one such as app=train, app!=train or 'app in (train,test)'"
        )
    if found["sign"]:
        return Term(
            key=found["key"], values=frozenset({found["value"].strip()}), is_negated=found["sign"] == "!="
        )
    if found["set"]:
        values = frozenset(value.strip() for value in found["values"].split(","))
        return Term(key=found["key"], values=values, is_negated=found["set"].strip() == "notin")
    return Term(key=found["key"], values=None, is_negated=bool(found["absent"]))
