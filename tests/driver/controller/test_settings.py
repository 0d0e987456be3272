"""The settings of the controller, as they are documented and as parts of it define them."""

import json
from pathlib import Path

import pytest

from drawbar.driver import main
from drawbar.driver.configuration import schema
from drawbar.driver.controller import settings

DOCS = Path(__file__).parents[3] / "docs"
DOCUMENT = DOCS / "controller.md"
EXAMPLE = DOCS / "examples" / "controller.yaml"


def test_every_setting_is_described_and_none_has_the_name_of_another():
    options = schema.options(settings.Settings)
    assert [option.key for option in options if not option.help or not option.flag] == []
    for names in (
        [option.key for option in options],
        [option.flag for option in options],
        [name for option in options for name in option.variables],
    ):
        assert len(names) == len(set(names))


def test_the_defaults_are_right_and_the_lease_has_a_name_for_everybody():
    assert settings.problems(settings.Settings()) == []
    assert settings.Settings().candidate == settings.own_identity()
    assert settings.Settings(identity="pod-1").candidate == "pod-1"


WRONG = {
    "driver": ("Not_DNS", "--driver-name"),
    "binding_timeout_seconds": (float("nan"), "--binding-timeout"),
    "lease_namespace": ("no/namespace", "--lease-namespace"),
    "writes_per_second": (0.0, "--api-writes-per-second"),
    "writes_burst": (0, "--api-writes-burst"),
    "http": (settings.Http(address="0.0.0.0:80"), "--http-address"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_one_sentence_that_names_its_flag(name):
    value, flag = WRONG[name]
    (problem,) = settings.problems(settings.Settings(**{name: value}))
    assert flag in problem


def effective(capsys, *words):
    assert main.main(["controller", *words, "--print-config", "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_example_is_right_and_says_something(capsys):
    options = effective(capsys, f"--config={EXAMPLE}")
    assert options["bindingTimeoutSeconds"] == {"value": 1200.0, "source": f"{EXAMPLE}:3"}
    assert options["log.format"]["value"] == "json"


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path, monkeypatch, capsys):
    (tmp_path / "c.yaml").write_text("leaseNamespace: file\nidentity: file\napiWritesBurst: 7\n")
    monkeypatch.setenv("POD_NAMESPACE", "environment")
    monkeypatch.setenv("POD_NAME", "environment")
    options = effective(capsys, f"--config={tmp_path / 'c.yaml'}", "--identity=flag", "--no-leader-election")
    reported = {key: (entry["value"], entry["source"]) for key, entry in options.items()}
    assert reported["identity"] == ("flag", "--identity")
    assert reported["leaseNamespace"] == ("environment", "POD_NAMESPACE")
    assert reported["apiWritesBurst"] == (7, f"{tmp_path / 'c.yaml'}:3")
    assert reported["leaderElection"] == (False, "--leader-election")


def test_the_printed_configuration_can_be_read_again(tmp_path, capsys):
    assert main.main(["controller", "--print-config"]) == 0
    first = capsys.readouterr().out
    (tmp_path / "c.yaml").write_text(first)
    assert main.main(["controller", f"--config={tmp_path / 'c.yaml'}", "--print-config"]) == 0
    second = capsys.readouterr().out
    bare = [[line.partition("  #")[0] for line in text.splitlines()] for text in (first, second)]
    assert bare[0] == bare[1]


def test_all_wrong_settings_are_listed_at_once_and_nothing_runs(capsys):
    assert main.main(["controller", "--binding-timeout=0", "--api-writes-burst=0"]) == 2
    reported = capsys.readouterr().err
    assert reported.startswith("error: 2 settings are wrong:")
    assert "--binding-timeout 0.0" in reported
    assert "--api-writes-burst 0" in reported


def test_no_daemon_to_ask_is_one_sentence(tmp_path, capsys):
    assert main.main(["controller", f"--http-address=unix:{tmp_path}/none.sock", "--check"]) == 1
    assert "no daemon answers at unix:" in capsys.readouterr().err
    assert main.main(["controller", "--http-address=off", "--check"]) == 2
    assert "--http-address is off" in capsys.readouterr().err
