"""The settings of the node daemon, as they are documented and as parts of it define them."""

import dataclasses
import re
from pathlib import Path

import pytest

from drawbar.driver import errors, main
from drawbar.driver.configuration import loader, schema
from drawbar.driver.node import settings

DOCUMENT = Path(__file__).parents[3] / "docs" / "node.md"


def test_every_setting_is_described_and_none_has_the_name_of_another():
    options = schema.options(settings.Settings)
    assert [option.key for option in options if not option.help] == []
    for names in (
        [option.key for option in options],
        [option.flag for option in options if option.flag],
        [name for option in options for name in option.variables],
    ):
        assert len(names) == len(set(names))


def test_the_defaults_are_right_but_for_the_name_of_the_node():
    assert settings.problems(settings.Settings(node_name="n")) == []
    assert [problem.split(":")[0] for problem in settings.problems(settings.Settings())] == ["no node name"]


WRONG = {
    "http": ("address", "0.0.0.0:1"),
    "discovery": ("audit_seconds", -1.0),
    "prepare": ("late_device_seconds", -1.0),
    "null_device": ("copies", 0),
    "release": ("kernel_seconds", 0.0),
    "local_pool": ("classes", ("toaster",)),
    "health": ("interval_seconds", float("nan")),
    "initialise": ("hooks", Path("hooks")),
}


def test_every_topic_judges_its_values():
    topics = {
        field.name
        for field in dataclasses.fields(settings.Settings)
        if dataclasses.is_dataclass(getattr(settings.Settings(), field.name))
    }
    # The settings of the log are choices, of which no value is wrong.
    assert topics == {*WRONG, "log"}


@pytest.mark.parametrize("topic", WRONG)
def test_a_wrong_value_of_a_topic_stops_the_start(topic):
    name, value = WRONG[topic]
    default = getattr(settings.Settings(), topic)
    wrong = settings.Settings(node_name="n", **{topic: dataclasses.replace(default, **{name: value})})
    with pytest.raises(errors.UsageError):
        loader.refuse(settings.problems(wrong))


def test_the_example_of_the_document_is_right(tmp_path, capsys):
    (example,) = re.findall(r"```yaml\n(nodeName.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (tmp_path / "c.yaml").write_text(example)
    assert main.main(["node", f"--config={tmp_path / 'c.yaml'}", "--print-config"]) == 0
    assert f"effect: NoSchedule  # {tmp_path / 'c.yaml'}:8" in capsys.readouterr().out


def test_the_printed_configuration_can_be_read_again(tmp_path, capsys):
    assert main.main(["node", "--node-name=n", "--print-config"]) == 0
    first = capsys.readouterr().out
    (tmp_path / "c.yaml").write_text(first)
    assert main.main(["node", f"--config={tmp_path / 'c.yaml'}", "--print-config"]) == 0
    second = capsys.readouterr().out
    bare = [[line.partition("  #")[0] for line in text.splitlines()] for text in (first, second)]
    assert bare[0] == bare[1]


def test_settings_that_are_wrong_are_shown_and_then_named(capsys):
    assert main.main(["node", "--node-name=n", "--print-config", "--visible-timeout=0"]) == 2
    shown_ = capsys.readouterr()
    assert "visibleTimeoutSeconds: 0.0  # --visible-timeout" in shown_.out
    assert shown_.err.startswith("error: --visible-timeout 0.0")
