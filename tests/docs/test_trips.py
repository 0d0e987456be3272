"""The four trips are short and straight, and docs/architecture.md shows them as they are."""

from pathlib import Path

import pytest
from tests.docs import trips

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


@pytest.mark.parametrize("scene", trips.TRIPS, ids=lambda scene: scene.__name__)
def test_a_trip_is_short_and_straight_and_documented_as_it_is(tmp_path, scene):
    traced = trips.run(scene, tmp_path)
    assert traced.ended, "a function that begins a leg was renamed, or the scene does not come to its end"
    assert not traced.turns
    assert len(traced.passed) <= trips.LIMIT
    assert trips.line(scene, traced) in PAGE.read_text(encoding="utf-8"), trips.line(scene, traced)
