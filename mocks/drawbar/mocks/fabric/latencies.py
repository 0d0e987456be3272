"""The times of a simulated fabric: distributions, drawn so that a seed decides everything.

A draw depends only on its key and on the number of earlier draws of that key. The order of other draws, or of tasks,
does not change it.
"""

import math
import random
from collections.abc import Mapping
from typing import TypeAlias

import msgspec


class _Distribution(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", tag_field="kind"
):
    """The base of all distributions: JSON with a `kind`. All numbers are seconds, except `sigma`."""


class Fixed(_Distribution, frozen=True, kw_only=True, tag="fixed"):
    """A constant."""

    seconds: float

    def draw(self, _source: random.Random) -> float:
        """Return the value."""
        return self.seconds

    def problems(self) -> list[str]:
        """Return its problems, a sentence each."""
        return _negative(seconds=self.seconds)


class Uniform(_Distribution, frozen=True, kw_only=True, tag="uniform"):
    """A uniform distribution between two values."""

    min: float = 0.0
    max: float

    def draw(self, source: random.Random) -> float:
        """Return a drawn value."""
        return source.uniform(self.min, self.max)

    def problems(self) -> list[str]:
        """Return its problems, a sentence each."""
        return _negative(min=self.min) + _bounds(self.min, self.max)


class Normal(_Distribution, frozen=True, kw_only=True, tag="normal"):
    """A normal distribution around a mean, cut at both ends."""

    mean: float
    deviation: float
    min: float = 0.0
    max: float

    def draw(self, source: random.Random) -> float:
        """Return a drawn value."""
        return min(self.max, max(self.min, source.gauss(self.mean, self.deviation)))

    def problems(self) -> list[str]:
        """Return its problems, a sentence each."""
        return _negative(min=self.min, deviation=self.deviation) + _bounds(self.min, self.max)


class Lognormal(_Distribution, frozen=True, kw_only=True, tag="lognormal"):
    """A lognormal distribution with a median, cut at both ends; `sigma` is the deviation of the logarithm."""

    median: float
    sigma: float
    min: float = 0.0
    max: float

    def draw(self, source: random.Random) -> float:
        """Return a drawn value."""
        return min(self.max, max(self.min, source.lognormvariate(math.log(self.median), self.sigma)))

    def problems(self) -> list[str]:
        """Return its problems, a sentence each."""
        sentences = _negative(min=self.min, sigma=self.sigma) + _bounds(self.min, self.max)
        return sentences if self.median > 0 else [*sentences, "median is not above 0"]


Distribution: TypeAlias = Fixed | Uniform | Normal | Lognormal


class Latencies(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """The times of a fabric; the default is no time.

    Attributes:
        attach: the time of an attach operation; instead of `attachSeconds`.
        detach: the time of a detach operation; instead of `detachSeconds`.
        attach_call: the time until an attach call answers, independent of the operation.
        detach_call: the time until a detach call answers.
        devices: the time until the inventory arrives; its content is from the start of the call.
        hosts: the time until the hosts arrive.
        operation: the time until a query of one operation is answered.
        operations: the time until a query of all operations is answered.
        cancel: the time until a cancellation begins.
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
        """Return the problems of all, a sentence each."""
        return [
            f"latencies: {field.encode_name}: {problem}"
            for field in msgspec.structs.fields(self)
            if (distribution := getattr(self, field.name)) is not None
            for problem in distribution.problems()
        ]


class Dice:
    """Draws under a seed. `used` counts the draws of each key; it is the only state to keep over a restart."""

    def __init__(self, seed: int, used: Mapping[str, int] | None = None) -> None:
        self._seed = seed
        self.used = dict(used or {})

    def seconds(self, distribution: Distribution | None, *key: str) -> float:
        """Return the next value for a key, in seconds; 0 without a distribution."""
        if distribution is None:
            return 0.0
        return distribution.draw(self._source(key))

    def happens(self, probability: float, *key: str) -> bool:
        """Return true with this probability; a probability of 1 uses no draw."""
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
