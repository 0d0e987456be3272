"""docs/try-it.md agrees with the chart and the programs; `make kubernetes` runs its commands (the stage `simulation`)."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from drawbar.driver import main
from drawbar.mocks.fabric import commands

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "try-it.md").read_text()
BLOCKS = re.findall(r"```sh (?:try|live)\n(.*?)```", PAGE, re.DOTALL)
LINES = [line for block in BLOCKS for line in block.splitlines()]
EXAMPLE = list(yaml.safe_load_all((ROOT / "docs" / "examples" / "try-it.yaml").read_text()))
CONTROLLER = (ROOT / "deploy" / "drawbar" / "templates" / "controller.yaml").read_text()


def test_five_commands_lead_from_no_cluster_to_a_pod():
    first = re.search(r"```sh try\n(.*?)```", PAGE, re.DOTALL)[1].splitlines()
    assert [line.split()[0] for line in first] == ["kind", "deploy/image/load", "kubectl", "helm", "kubectl"]
    files = [word for line in first for word in shlex.split(line) if "/" in word and "=" not in word]
    assert all((ROOT / each).exists() for each in files)


def words_of(*beginning):
    """Return the commands that begin so, as words."""
    split = [shlex.split(line) for line in LINES]
    return [words for words in split if tuple(words[: len(beginning)]) == beginning]


@pytest.mark.parametrize("words", words_of("drawbar"), ids=" ".join)
def test_a_command_of_drawbar_is_one(words):
    assert main.parser(words[1:]).parse_args(words[1:])


def test_the_pages_fabric_commands_are_valid_for_the_chart():
    executed = words_of("kubectl", "-n", "drawbar", "exec", "deployment/drawbar-controller")
    assert len(executed) == 2
    for words in executed:
        container, program = words[words.index("-c") + 1], words[words.index("--") + 1 :]
        assert f"- name: {container}\n" in CONTROLLER
        parsed = main.parser(program[1:]).parse_args(program[1:])
        assert f"--control={parsed.control}\n" in CONTROLLER
        assert commands.parse(commands.from_words(parsed.tell))


def test_the_host_that_loses_a_card_is_the_one_of_the_chart():
    node = (ROOT / "deploy" / "drawbar" / "templates" / "node.yaml").read_text()
    (words,) = words_of("kubectl", "-n", "drawbar", "exec", "daemonset/drawbar-node")
    program = words[words.index("--") + 1 :]
    parsed = main.parser(program[1:]).parse_args(program[1:])
    assert f"- name: {words[words.index('-c') + 1]}\n" in node
    assert f"--root={parsed.root}\n" in node
    assert parsed.pull == 1


def test_the_example_asks_for_a_class_of_the_simulation_with_the_image_that_the_page_makes():
    values = yaml.safe_load((ROOT / "deploy" / "drawbar" / "values.yaml").read_text())
    template, deployment = EXAMPLE
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    name, _, driver = request["exactly"]["deviceClassName"].partition(".")
    assert values["simulation"]["devices"][name]
    assert driver == values["driverName"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    image = yaml.safe_load((ROOT / "docs" / "examples" / "try-it-values.yaml").read_text())["image"]
    assert container["image"] == f"{image['repository']}:{image['tag']}"
    assert f"readonly IMAGE={container['image']}\n" in (ROOT / "deploy" / "image" / "load").read_text()
    (label,) = words_of("kubectl", "label")
    (key, value), *more = values["simulation"]["nodeSelector"].items()
    assert not more
    assert label[-1] == f"{key}={value}"
    assert sum(values["simulation"]["devices"].values()) == int(re.search(r"(\d+) devices", PAGE)[1])
