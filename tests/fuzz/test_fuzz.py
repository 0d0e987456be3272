"""No parser of foreign text raises anything but its own refusal: some inputs of each in every run, `make fuzz` for millions."""

import random

import pytest
from tests.fuzz import mutation, targets

INPUTS = 400


@pytest.mark.parametrize("name", targets.TARGETS)
def test_a_parser_accepts_its_seeds(name, tmp_path):
    for seed in targets.TARGETS[name].seeds:
        targets.TARGETS[name].parse(seed, tmp_path)


@pytest.mark.parametrize("name", targets.TARGETS)
def test_a_parser_refuses_everything_else_by_its_own_error(name, tmp_path):
    target, choice = targets.TARGETS[name], random.Random(name)
    for _ in range(INPUTS):
        target.judge(mutation.mutate(choice.choice(target.seeds), targets.TOKENS, choice), tmp_path)


def test_an_unexpected_exception_is_raised(tmp_path):
    def parse(raw, _folder):
        return raw.decode()

    with pytest.raises(UnicodeDecodeError):
        targets.Target(parse=parse, seeds=()).judge(b"\xff", tmp_path)
