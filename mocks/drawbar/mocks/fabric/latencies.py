"""How long things take in a simulated fabric: distributions, drawn so that a seed decides everything.

A draw is keyed by what it is for and by how many there were before it of the same, and by nothing else: so which of two
devices is asked for first, or how their tasks take turns, does not change what either of them gets.
"""

import math
import random
from collections.abc import Mapping
from typing import TypeAlias

import msgspec


class _Distribution(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", tag_field="kind"
):
    """How every distribution is read: JSON with a `kind`. All numbers are seconds, but for `sigma`."""


class Fixed(_Distribution, frozen=True, kw_only=True, tag="fixed"):
    """Always the same."""

    seconds: float

    def drawn(self, _source: random.Random) -> float:
        """The value."""
        return self.seconds

    def problems(self) -> list[str]:
        """What is wrong with it."""
        return _negative(seconds=self.seconds)


class Uniform(_Distribution, frozen=True, kw_only=True, tag="uniform"):
    """Anything between two values."""

    min: float = 0.0
    max: float

    def drawn(self, source: random.Random) -> float:
        """A value."""
        return source.uniform(self.min, self.max)

    def problems(self) -> list[str]:
        """What is wrong with it."""
        return _negative(min=self.min) + _bounds(self.min, self.max)


class Normal(_Distribution, frozen=True, kw_only=True, tag="normal"):
    """A bell around a mean, cut at both ends."""

    mean: float
    deviation: float
    min: float = 0.0
    max: float

    def drawn(self, source: random.Random) -> float:
        """A value."""
        return min(self.max, max(self.min, source.gauss(self.mean, self.deviation)))

    def problems(self) -> list[str]:
        """What is wrong with it."""
        return _negative(min=self.min, deviation=self.deviation) + _bounds(self.min, self.max)


class Lognormal(_Distribution, frozen=True, kw_only=True, tag="lognormal"):
    """Half of it below a median, with a long tail, cut at both ends; `sigma` is the deviation of the logarithm."""

    median: float
    sigma: float
    min: float = 0.0
    max: float

    def drawn(self, source: random.Random) -> float:
        """A value."""
        return min(self.max, max(self.min, source.lognormvariate(math.log(self.median), self.sigma)))

    def problems(self) -> list[str]:
        """What is wrong with it."""
        sentences = _negative(min=self.min, sigma=self.sigma) + _bounds(self.min, self.max)
        return sentences if self.median > 0 else [*sentences, "median is not above 0"]


Distribution: TypeAlias = Fixed | Uniform | Normal | Lognormal


class Latencies(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """What takes how long; what is not given takes no time.

    Attributes:
        attach: the operation, from its beginning to its end; instead of `attachSeconds`.
        detach: likewise, instead of `detachSeconds`.
        attach_call: until the call answers, whatever becomes of the operation.
        detach_call: likewise.
        devices: until the inventory is there; a slow one is old when it arrives.
        hosts: until the hosts are there.
        operation: until a question for one operation is answered.
        operations: until a question for all is answered.
        cancel: until a cancellation begins.
    """

    attach: Distribution | None = None
    detach: Distribution | None = None
    attach_call: Distribution | None = None
    detach_call: Distribution | None = None
    devices: Distribution | None = None
    hosts: Distribution | None = None
    operation: Distribution | None = None
    operations: Distribution | None = None
    cancel: Distribution | None = None

    def problems(self) -> list[str]:
        """What is wrong with any of them."""
        return [
            f"latencies: {field.encode_name}: {problem}"
            for field in msgspec.structs.fields(self)
            if (distribution := getattr(self, field.name)) is not None
            for problem in distribution.problems()
        ]


class Dice:
    """Draws under a seed. `used` counts the draws of each key, and is all there is to remember over a restart."""

    def __init__(self, seed: int, used: Mapping[str, int] | None = None) -> None:
        self._seed = seed
        self.used = dict(used or {})

    def seconds(self, distribution: Distribution | None, *key: str) -> float:
        """The next value for a key; 0 without a distribution."""
        if distribution is None:
            return 0.0
        return distribution.drawn(self._source(key))

    def happens(self, probability: float, *key: str) -> bool:
        """Whether something of this probability happens this time; certainties use nothing up."""
        if probability >= 1:
            return True
        return self._source(key).random() < probability

    def _source(self, key: tuple[str, ...]) -> random.Random:
        name = "/".join(key)
        number = self.used.get(name, 0)
        self.used[name] = number + 1
        return random.Random(f"{self._seed}/{name}/{number}")  # noqa: S311 -- to be repeated, not to be secret


def _negative(**values: float) -> list[str]:
    return [f"{name} is negative" for name, value in values.items() if value < 0]


def _bounds(low: float, high: float) -> list[str]:
    return [f"max {high:g} is below min {low:g}"] if high < low else []
