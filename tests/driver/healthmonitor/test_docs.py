"""docs/health-monitor.md is true: its tables are the fields and settings, its examples are taken, its metrics exist."""

import json
import re
from pathlib import Path

import msgspec
import pytest
import yaml

from drawbar.driver import errors, main
from drawbar.driver.api import healthpolicies
from drawbar.driver.configuration import loader
from drawbar.driver.healthmonitor import metrics, settings, signals

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "health-monitor.md").read_text()
NESTED = {
    "device": healthpolicies.Device,
    "taint": healthpolicies.Taint,
    "hold": healthpolicies.Hold,
    "rate": healthpolicies.Rate,
}


def section(title):
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_definition_has_the_fields_and_the_defaults_that_are_read():
    text = (ROOT / "deploy" / "drawbar" / "definitions" / "healthpolicies.yaml").read_text()
    (version,) = yaml.safe_load(text)["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert spec.keys() == set(healthpolicies.Spec.__struct_encode_fields__)
    read = msgspec.to_builtins(healthpolicies.Spec(source=healthpolicies.Source.ALERT))
    assert read == {"source": "alert"}
    for name, inner in NESTED.items():
        assert spec[name]["properties"].keys() == set(inner.__struct_encode_fields__)
        defaults = {
            field: value["default"] for field, value in spec[name]["properties"].items() if "default" in value
        }
        assert msgspec.convert(defaults, inner) == inner(), name
    flat = {
        name: value["default"] for name, value in spec.items() if "default" in value and name not in NESTED
    }
    assert msgspec.convert({"source": "alert"} | flat, healthpolicies.Spec) == healthpolicies.Spec(
        source=healthpolicies.Source.ALERT
    )


def test_the_example_of_a_policy_and_of_a_command_are_read():
    (example, *_) = re.findall(r"```yaml\n(.*?)```", section("Policies"), re.DOTALL)
    policy = msgspec.convert(yaml.safe_load(example), healthpolicies.HealthPolicy)
    assert policy.spec.hold.seconds == 300
    (output,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert len(signals.read(healthpolicies.Source.COMMAND, output.encode()).signals) == 1


def test_every_metric_is_documented():
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    listed = page.replace("drawbar_<daemon>_", "drawbar_health_monitor_")
    documented = set(re.findall(r"^- `(drawbar_health_monitor_\w+)", listed, re.MULTILINE))
    exposed = metrics.Metrics("drawbar.dev")
    exposed.show()
    assert documented == set(exposed.labels())


def test_the_verb_shows_its_settings_and_reports_user_errors(capsys):
    assert (
        main.main(["health-monitor", "--dry-run", "--token-file", "x", "--print-config", "-o", "json"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["dryRun"] == {"value": True, "source": "--dry-run"}
    with pytest.raises(errors.UsageError, match="--token-file"):
        loader.refuse(settings.problems(settings.Settings()))
    wrong = settings.Settings(
        listen=settings.Listen(address="here", port=-1),
        command=settings.Command(path=Path("x"), interval_seconds=float("nan")),
        http=settings.Http(address="0.0.0.0:1"),
    )
    assert len(settings.problems(wrong)) == 6
