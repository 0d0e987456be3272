"""Settings from file, environment and flags: one precedence, and every mistake named at once."""

import argparse
import dataclasses
import enum
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from drawbar.driver import errors
from drawbar.driver.configuration import loader, schema


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How links are judged.

    Attributes:
        hold_down_seconds: how long a finding must last.
    """

    hold_down_seconds: float = 30.0
    strict: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Health of devices.

    Attributes:
        strict: whether 100% is asked for.
        interval_seconds: how long
            between two looks.
    """

    classes: tuple[str, ...] = ("gpu", "fpga")
    link: Link = Link(hold_down_seconds=20.0)
    limit: int = 5
    strict: bool = False
    interval_seconds: float = 10.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A daemon.

    Attributes:
        name: what it is called.
    """

    name: str = dataclasses.field(default="", metadata=schema.name_setting(variables=("NAME",)))
    folder: Path = Path("/a")
    colour: Colour = Colour.RED
    file: Path | None = None
    health: Health = dataclasses.field(default_factory=Health)
    ports: tuple[int, ...] = ()


def load(*words, environ=None, judge=lambda settings: []):
    parser = argparse.ArgumentParser()
    loader.add_flags(parser, Settings)
    return loader.load(Settings, parser.parse_args(words), problems=judge, environ=environ or {})


def test_without_anything_the_defaults_hold():
    loaded = load()
    assert loaded.settings == Settings()
    assert {setting.source for setting in loaded.effective} == {"default"}


def test_names_follow_one_rule():
    names = {
        option.key: (option.flag, option.variables[0], option.metavar) for option in schema.options(Settings)
    }
    assert names["health.link.holdDownSeconds"] == ("", "DRAWBAR_HEALTH_LINK_HOLD_DOWN", "SECONDS")
    assert names["health.intervalSeconds"] == ("--health-interval", "DRAWBAR_HEALTH_INTERVAL", "SECONDS")
    assert names["colour"] == ("--colour", "DRAWBAR_COLOUR", "{red,blue}")


SOURCES = ("default", "file", "rule", "own", "flag")


@pytest.mark.parametrize(
    "sources", [[source for source in SOURCES if mask >> SOURCES.index(source) & 1] for mask in range(1, 32)]
)
def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path, sources):
    file = tmp_path / "c.yaml"
    file.write_text("\nname: by-file\n" if "file" in sources else "")
    environ = {"DRAWBAR_CONFIG": str(file)}
    environ |= {"DRAWBAR_NAME": "by-rule"} if "rule" in sources else {}
    environ |= {"NAME": "by-own"} if "own" in sources else {}
    words = ["--name=by-flag"] if "flag" in sources else []
    setting = load(*words, environ=environ).effective[0]
    expected = {
        "flag": ("by-flag", "--name"),
        "rule": ("by-rule", "DRAWBAR_NAME"),
        "own": ("by-own", "NAME"),
        "file": ("by-file", f"{file}:2"),
        "default": ("", "default"),
    }
    winner = next((source for source in expected if source in sources), "default")
    assert (setting.value, setting.source) == expected[winner]


def test_the_flag_names_the_file_before_the_variable_does(tmp_path):
    (tmp_path / "flag").write_text("name: flag")
    environ = {"DRAWBAR_CONFIG": str(tmp_path / "nowhere")}
    assert load(f"--config={tmp_path / 'flag'}", environ=environ).settings.name == "flag"


def test_an_empty_variable_is_one_that_is_not_set():
    assert load(environ={"NAME": "", "DRAWBAR_COLOUR": ""}).settings == Settings()


def test_every_type_is_read_from_the_file(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(
        "folder: /b\ncolour: blue\nfile: ~\nports: [1, 2]\n"
        "health: {classes: [nvme], limit: 7, link: {holdDownSeconds: 1, strict: yes}}\n"
    )
    assert load(f"--config={file}").settings == Settings(
        folder=Path("/b"),
        colour=Colour.BLUE,
        ports=(1, 2),
        health=Health(classes=("nvme",), limit=7, link=Link(hold_down_seconds=1.0, strict=True)),
    )


def test_json_is_a_file_too(tmp_path):
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"name": "n", "health": {"link": {"strict": True}}}))
    assert load(f"--config={file}").settings.health.link.strict


def test_every_type_is_read_from_variables_and_flags():
    by_variable = load(
        environ={
            "DRAWBAR_FILE": "/f",
            "DRAWBAR_PORTS": "1, 2",
            "DRAWBAR_HEALTH_CLASSES": "a,b",
            "DRAWBAR_HEALTH_STRICT": "true",
        }
    )
    by_flag = load(
        *("--file=/f", "--ports=1", "--ports=2", "--health-classes=a,b", "--health-strict"),
        environ={"DRAWBAR_PORTS": "9"},
    )
    assert by_variable.settings == by_flag.settings
    assert by_flag.settings.ports == (1, 2)
    assert load("--no-health-strict", environ={"DRAWBAR_HEALTH_STRICT": "1"}).settings == Settings()


WRONG = {
    "unknown-key": ("nmae: x", ":1: nmae is not a setting; did you mean name?"),
    "unknown-key-in-a-topic": ("health:\n  link:\n    hold: 1\n", ":3: health.link.hold is not a setting"),
    "key-at-the-wrong-place": ("limit: 1", ":1: limit is not a setting; did you mean health.limit?"),
    "twice": ("name: a\nname: b\n", ":2: name appears twice"),
    "word-for-a-number": ("ports: [1, x]", ":1: ports: 'x' is not a whole number"),
    "fraction-for-a-whole-number": ("health: {limit: 1.5}", "'1.5' is not a whole number"),
    "text-for-a-switch": ("health: {link: {strict: maybe}}", "write true or false"),
    "quoted-number": ('health: {limit: "5"}', "in quotes is text"),
    "unknown-choice": ("colour: green", "'green' is not one of red, blue"),
    "list-for-one": ("name: [a]", "this is a sequence, not one value"),
    "one-for-a-list": ("ports: 1", "this is not a list"),
    "value-for-a-topic": ("health: 5", "health holds keys with values"),
    "nothing": ("colour:", "the value is missing"),
    "a-list": ("- a", "the file holds keys with values"),
    "keys-that-are-no-words": ("? [a]\n: b\n", "a key is a word"),
    "no-yaml": ("a: [", "this is not YAML"),
    "a-tab": ("health:\n\tlimit: 1\n", ":2: this is not YAML"),
    "unknown-alias": ("name: *x", "this is not YAML"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_in_the_file_is_named_with_file_line_key_and_remedy(tmp_path, case):
    text, expected = WRONG[case]
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(errors.UsageError) as raised:
        load(f"--config={file}")
    assert str(raised.value).startswith(f"{file}")
    assert expected in str(raised.value)


UNREADABLE = {"bytes": b"\xff\xfe\xff", "control": b"name: \x00", "too-long": b"#" * (1 << 20) + b"#"}


@pytest.mark.parametrize("case", UNREADABLE)
def test_an_unreadable_file_is_reported_by_its_path(tmp_path, case):
    (tmp_path / "c").write_bytes(UNREADABLE[case])
    with pytest.raises(errors.UsageError, match=str(tmp_path / "c")):
        load(f"--config={tmp_path / 'c'}")


def test_a_distant_character_of_json_is_one_and_half_of_one_is_refused(tmp_path):
    (tmp_path / "c").write_text('{"name": "\\ud83d\\ude00"}')
    assert load(f"--config={tmp_path / 'c'}").settings.name == "😀"
    (tmp_path / "c").write_text('{"name": "\\ud83d"}')
    with pytest.raises(errors.UsageError, match="half a character"):
        load(f"--config={tmp_path / 'c'}")


def test_a_deep_file_is_one_sentence(tmp_path):
    (tmp_path / "c").write_text("[" * 20_000)
    with pytest.raises(errors.UsageError, match="not YAML"):
        load(f"--config={tmp_path / 'c'}")


def test_all_mistakes_of_all_sources_are_listed_at_once(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("nmae: x\ncolour: green\n")
    with pytest.raises(errors.UsageError) as raised:
        load(f"--config={file}", "--ports=x", environ={"DRAWBAR_HEALTH_LIMIT": "many"})
    first, *listed = str(raised.value).splitlines()
    assert first == "4 settings are wrong:"
    assert [line.split(": ")[0].removeprefix("  - ") for line in listed] == [
        f"{file}:1",
        f"{file}:2",
        "DRAWBAR_HEALTH_LIMIT",
        "--ports",
    ]


def test_the_problem_of_a_wrong_value_has_its_source(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("health:\n  limit: -5\n")

    def judge(settings):
        return ["health.limit -5 is below 1", "--name is missing"]

    loaded = load(f"--config={file}", judge=judge)
    assert loaded.problems == (f"health.limit -5 is below 1 (set by {file}:2)", "--name is missing")
    with pytest.raises(errors.UsageError, match="2 settings are wrong"):
        loaded.validate()


def test_variables_that_look_like_settings_are_distinguished_from_those_of_services():
    environ = {
        "DRAWBAR_NAMME": "x",
        "DRAWBAR_NAME": "x",
        "DRAWBAR_SERVICE_HOST": "10.0.0.1",
        "DRAWBAR_NODE_PORT": "tcp://10.0.0.1:80",
        "DRAWBAR_NODE_PORT_80_TCP_ADDR": "10.0.0.1",
        "DRAWBAR_NODE_SERVICE_PORT_HTTP": "80",
        "OTHER": "x",
    }
    assert load(environ=environ).ignored == ("DRAWBAR_NAMME",)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
SETTINGS = st.builds(
    Settings,
    name=TEXT,
    folder=TEXT.filter(bool).map(Path),
    colour=st.sampled_from(Colour),
    file=st.none() | TEXT.map(Path),
    ports=st.lists(st.integers()).map(tuple),
    health=st.builds(
        Health,
        classes=st.lists(TEXT).map(tuple),
        limit=st.integers(),
        link=st.builds(Link, hold_down_seconds=st.floats(allow_nan=False), strict=st.booleans()),
    ),
)


def effective(settings):
    listed = []
    for option in schema.options(Settings):
        value = settings
        for name in option.path:
            value = getattr(value, name)
        listed.append(loader.Setting(option=option, value=value, source="a test"))
    return tuple(listed)


@limits(max_examples=40)
@given(SETTINGS)
def test_the_printed_settings_are_a_valid_file(tmp_path_factory, settings):
    file = tmp_path_factory.mktemp("printed") / "c.yaml"
    file.write_text(loader.as_yaml(effective(settings)))
    assert load(f"--config={file}").settings == settings


@limits(max_examples=40)
@given(SETTINGS)
def test_the_json_of_the_settings_has_every_key(settings):
    printed = json.loads(loader.as_json(effective(settings)))
    assert list(printed) == [option.key for option in schema.options(Settings)]
    assert printed["health.limit"] == {"value": settings.health.limit, "source": "a test"}


def test_help_has_the_meaning_and_default_of_a_setting(capsys):
    parser = argparse.ArgumentParser()
    loader.add_flags(parser, Settings)
    page = " ".join(parser.format_help().split())
    assert "--health-interval SECONDS how long between two looks (default: 10.0)" in page
    assert "--health-link" not in page
    assert "--name TEXT what it is called (default: $NAME)" in page
    assert "100% is asked for (default: no)" in page
    assert "gpu,fpga" in page


def test_an_owner_can_override_the_defaults_of_a_topic():
    defaults = {option.key: option.default for option in schema.options(Settings)}
    assert defaults["health.link.holdDownSeconds"] == 20.0
    assert load(environ={"DRAWBAR_HEALTH_LINK_STRICT": "1"}).settings.health.link == Link(
        hold_down_seconds=20.0, strict=True
    )


def test_a_type_that_no_setting_can_have_is_a_fault_of_the_program():
    @dataclasses.dataclass
    class Odd:
        pairs: dict = dataclasses.field(default_factory=dict)

    with pytest.raises(TypeError, match="dict"):
        schema.options(Odd)


def test_yaml_guesses_no_types(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("name: off\nhealth: {classes: [1.36, yes, 0x10]}\n")
    settings = load(f"--config={file}").settings
    assert (settings.name, settings.health.classes) == ("off", ("1.36", "yes", "0x10"))
    assert yaml.safe_load("off") is False
