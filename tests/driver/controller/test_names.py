"""The Kubernetes names of what a fabric manager lists: no id can be chosen that takes another one's name."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.controller import names

SHARE = "share-01234567-89ab-cdef-0123-456789abcdef"
# Two ids with the same 32-bit hash; there are such pairs, and everybody can find one.
TWINS = ("GPU  ._./_ ", "GPU _,/    ")
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

ids = st.text(min_size=1, max_size=130) | st.from_regex(LABEL, fullmatch=True) | st.sampled_from(TWINS)


@given(text=ids)
def test_every_id_has_a_dns_label(text):
    assert LABEL.fullmatch(names.label(text))


@pytest.mark.parametrize("text", ["gpu-0", "0", "nvme-s123", "4c4c4544-0039-3510-8057-b4c04f564433"])
def test_an_id_that_is_a_name_is_that_name(text):
    assert names.label(text) == text


@given(text=ids, room=st.integers(min_value=0, max_value=20))
def test_the_name_of_one_id_as_the_id_of_another_is_another_name(text, room):
    made = names.label(text, room=room)
    assert (names.label(made) == made) == (made == text and names.label(text) == text)
    if made != text:
        assert names.label(made) != made


@given(
    prefix=st.from_regex(r"[a-z][a-z0-9]{0,10}", fullmatch=True),
    members=st.lists(ids, min_size=2, max_size=4),
)
def test_no_id_is_the_name_of_a_composite_of_a_rule(prefix, members):
    composite = names.composite(prefix, tuple(members))
    assert names.label(composite) != composite


def test_of_two_ids_with_one_name_one_has_it_and_the_other_one_is_found():
    first, second = TWINS
    assert names.label(first) == names.label(second)
    assert names.unambiguous([second, first, "x"], {}) == (frozenset({first, "x"}), ((second, first),))
    held = {names.label(second): second}
    assert names.unambiguous([first, second], held) == (frozenset({second}), ((first, second),))


@given(listed=st.lists(ids, max_size=6), held=st.lists(ids, max_size=3))
def test_each_shown_id_has_its_own_name_and_omissions_are_reported(listed, held):
    shown, namesakes = names.unambiguous(listed, {names.label(text): text for text in held})
    assert len({names.label(text) for text in shown}) == len(shown)
    assert shown | {text for text, _ in namesakes} == set(listed)
    assert all(names.label(text) == names.label(owner) and owner in shown for text, owner in namesakes)
