"""Every verb of the parser takes the shared flags, spells objects alike, and ends with the same statuses."""

import argparse
import socket

import pytest
import yaml
from tests.driver.cli.fabric.conftest import cluster as fabric_cluster

from drawbar.driver import errors, main
from drawbar.driver.cli import objects

cluster = fabric_cluster
CLUSTER = ("--kubeconfig", "--context", "--as", "--as-group", "-n", "--namespace", "--no-color")
LISTS = ("-A", "--all-namespaces", "-l", "--selector", "-o", "--output")
# What a verb does. `host`: it reads no cluster, or is a program of its own.
VERBS = {
    "status": {"lists", "object"},
    "explain": {"prints", "object"},
    "doctor": {"prints"},
    "report": {"prints"},
    "ui": set(),
    "maintenance on": {"prints", "object", "changes", "dry-run"},
    "maintenance off": {"prints", "object", "changes", "dry-run"},
    "maintenance list": {"lists"},
    "taint preview": {"prints", "object"},
    "taint add": {"prints", "object", "changes", "dry-run"},
    "taint list": {"lists"},
    "taint show": {"prints", "object"},
    "taint remove": {"prints", "object", "changes", "dry-run"},
    "move": {"prints", "object", "changes", "dry-run"},
    "fabric adapters": {"host", "prints"},
    "fabric check": {"prints", "object"},
    "fabric devices": {"lists", "object"},
    "fabric hosts": {"lists", "object"},
    "fabric operations": {"lists", "object"},
    "fabric attach": {"prints", "object", "changes", "dry-run"},
    "fabric detach": {"prints", "object", "changes", "dry-run"},
    "fabric watch": {"prints", "object"},
    "fabric conformance": {"prints", "changes"},
    "fabric record": {"prints", "object", "changes"},
    "discover": {"host", "prints"},
    "controller": {"host"},
    "node": {"host"},
    "webhook": {"host"},
    "health-monitor": {"host"},
    "completion": {"host"},
}
OF_CLUSTER = [verb for verb, does in VERBS.items() if "host" not in does]


def actions(parser):
    return parser._actions


def leaves(parser, words=()):
    """Yield each command line of the program up to its flags, with its parser."""
    below = [action for action in actions(parser) if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield " ".join(words), parser
    for action in below:
        for name, own in action.choices.items():
            if words or name in main.VERBS:
                yield from leaves(own, (*words, name))


PARSERS = dict(leaves(main.parser([])))


def flags_of(verb):
    return {option for action in actions(PARSERS[verb]) for option in action.option_strings}


def test_every_verb_has_a_row():
    assert set(PARSERS) == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_the_flags_of_its_row(verb):
    does, flags = VERBS[verb], flags_of(verb)
    assert ("host" not in does) == ("--context" in flags)
    if "host" not in does:
        assert set(CLUSTER) <= flags
    if does & {"prints", "lists"}:
        assert {"-o", "--output"} <= flags
    assert ("lists" in does) == (set(LISTS) <= flags)
    assert ("changes" in does) == ("--yes" in flags)
    assert "host" in does or ("dry-run" in does) == ("--dry-run" in flags)
    assert ("object" in does) == any(
        isinstance(action, objects.TargetAction) for action in actions(PARSERS[verb])
    )
    assert verb == "ui" or "host" in does or "--timeout" in flags


@pytest.mark.parametrize("word", ["a/b/c", "claim/a/b/c", "pod//b", "pod/a/"])
def test_a_name_with_too_many_or_empty_parts_is_refused(word):
    with pytest.raises(errors.UsageError, match="/NAMESPACE/NAME"):
        objects.parse([word], "default", ("claim", "pod"), default="claim")


@pytest.mark.parametrize("verb", OF_CLUSTER)
def test_flags_stand_before_the_verb_after_it_and_before_its_action(verb):
    options = ["-n", "team-a", "--context", "c", "--as=me", "--no-color"]
    if "lists" in VERBS[verb]:
        options += ["-A", "-l", "app=train", "-o", "name"]
    words = verb.split()
    plain = [*words, *options]
    for line in ([*options, *words], [words[0], *options, *words[1:]], plain):
        moved = main.verb_first(line)
        assert moved[: len(words)] == words
        assert sorted(moved) == sorted(plain)
        known, _ = main.parser(moved).parse_known_args([*moved, *_list_required_words(verb)])
        assert (known.namespace, known.context, known.as_user) == ("team-a", "c", "me")


def _list_required_words(verb):
    """Return the words and flags without which the verb is refused."""
    if verb == "fabric conformance":
        return ["--devices", "d", "--hosts", "h"]
    if verb == "fabric record":
        return ["--to", "f"]
    return ["x"] if "object" in VERBS[verb] else []


@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml", "name", "jsonpath={.kind}"])
@pytest.mark.parametrize("verb", [verb for verb, does in VERBS.items() if does & {"prints", "lists"}])
def test_every_form_of_the_output_is_known_to_every_verb(verb, form):
    words = [*verb.split(), "-o", form, *_list_required_words(verb)]
    assert main.parser(words).parse_args(words).output == form


@pytest.mark.parametrize("verb", VERBS)
def test_a_wrong_flag_is_wrong_usage(verb, run_verb):
    status, _, reported = run_verb(*verb.split(), "--zzz", *_list_required_words(verb))
    assert status == 2
    assert "usage: drawbar" in reported


@pytest.mark.parametrize("verb", sorted({words.partition(" ")[0] for words in VERBS if " " in words}))
def test_a_verb_without_its_action_lists_the_actions(verb, run_verb):
    status, _, reported = run_verb(verb)
    assert status == 2
    actions = [words.partition(" ")[2] for words in VERBS if words.startswith(f"{verb} ")]
    assert f"ACTION is one of: {', '.join(actions)}\n" in reported


@pytest.mark.parametrize("verb", [verb for verb in OF_CLUSTER if verb != "fabric conformance"])
def test_a_server_without_an_answer_is_not_read(verb, run_verb, tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(closed.getsockname()[1])))
        words = [*verb.split(), *_list_object_words(verb), "--kubeconfig", str(kubeconfig)]
        status, out, reported = run_verb(*words)
    assert (status, out) == (3, ""), reported


def _kubeconfig(port):
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
    }


def _list_object_words(verb):
    """Return an object for the verb, and the flags that it needs with one."""
    words = {
        "fabric attach": ["gpu-x", "node-x", "--fabric", "rack-1"],
        "fabric detach": ["gpu-x", "--fabric", "rack-1"],
        "fabric record": ["rack-1", "--to", "none.json"],
        "taint show": ["x"],
        "taint remove": ["x"],
        "taint add": ["x", "device/x"],
        "move": ["x"],
    }
    if verb in words:
        return words[verb]
    if verb.startswith("fabric "):
        return ["rack-1"]
    return ["device/x"] if "object" in VERBS[verb] else []


SPELLINGS = [
    (verb, kind, words)
    for verb in OF_CLUSTER
    for action in actions(PARSERS[verb])
    if isinstance(action, objects.TargetAction) and verb != "fabric record"
    for kind in action.kinds
    for names in ((objects.KINDS | objects.SPECIAL_KINDS)[kind],)
    for name in ("rack-x/enc-x" if kind == "enclosure" else "none-such",)
    for words in ([f"{names[0]}/{name}"], [names[-1], name])
]


@pytest.mark.parametrize("kind", objects.KINDS | objects.SPECIAL_KINDS)
def test_every_name_of_a_kind_is_understood(kind):
    for spelling in (objects.KINDS | objects.SPECIAL_KINDS)[kind]:
        for words in ([f"{spelling}/a"], [spelling, "a"], [spelling.upper(), "a"]):
            assert str(objects.parse(words, "default", (kind,))) == f"{kind}/a"


@pytest.mark.drawbar(profile="1.37")
def test_kinds_are_spelt_alike_and_an_absent_object_is_trouble(cluster, run_verb):
    common = ["--kubeconfig", str(cluster.kubeconfig), "--timeout", "60s"]
    wrong = []
    for verb, kind, words in SPELLINGS:
        line = [*verb.split(), *_around(verb, kind, words), *common]
        status, _, reported = run_verb(*line)
        # A preview of no device is fine.
        expected = 0 if verb == "taint preview" else 1
        if status != expected or "there is no kind" in reported or "takes no" in reported:
            wrong.append((" ".join(line), status, reported))
    assert not wrong


def _around(verb, kind, words):
    """Return the object's words with the others that the verb needs."""
    if verb in ("fabric attach", "fabric detach"):
        words = [*words, "host-1"] if kind == "device" and verb == "fabric attach" else words
        return [*(["gpu-1"] if kind in ("node", "host") else []), *words, "--fabric", "fab/rack-1", "--yes"]
    if verb == "taint add":
        return ["rule/new", *words, "--yes"]
    if verb == "taint remove":
        return [*words, "--yes"]
    return [*words, "--yes"] if verb in ("move", "maintenance on", "maintenance off") else words
