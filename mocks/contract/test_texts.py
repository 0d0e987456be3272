"""JSON text at its edges: accepted, kept byte by byte, or turned into U+FFFD; see `tests/cases/json`."""

import json
from pathlib import Path
from typing import Any

import pytest

from contract import bodies
from contract.api import Reply
from contract.world import Corner

pytestmark = pytest.mark.needs("v1")

FOLDER = Path(__file__).parents[2] / "tests" / "cases" / "json"
CASES = {path.stem: path.read_bytes() for path in sorted(FOLDER.glob("*.value"))}
EXPECTED = {name: json.loads((FOLDER / f"{name}.json").read_bytes()) for name in CASES}
TEXTS = [name for name in CASES if name.startswith(("byte-", "surrogate"))]
KEPT = [name for name, expected in EXPECTED.items() if expected["apiServer"] == "keeps"]
REFUSED = [name for name, expected in EXPECTED.items() if expected["apiServer"] == "refuses"]
MARK = b'"@"'


async def post(world: Corner, value: bytes, *, parameters: bool) -> tuple[str, Reply]:
    """Create a claim with the value in its opaque parameters, or else in an annotation."""
    name = world.name()
    opaque = {"driver": world.driver, "parameters": {"a": "@" if parameters else 1}}
    spec = {"devices": {"requests": [bodies.request("one", "x")], "config": [{"opaque": opaque}]}}
    metadata = {} if parameters else {"annotations": {"contract.drawbar.dev/a": "@"}}
    body = json.dumps(world.body("resourceclaims", name, metadata=metadata, spec=spec), separators=(",", ":"))
    reply = await world.api.post(world.path("resourceclaims"), body.encode().replace(MARK, value))
    world.remember(world.path("resourceclaims", name))
    return name, reply


async def read_text_after(world: Corner, name: str, before: bytes) -> bytes:
    """Return the text of the claim behind these words."""
    reply = await world.api.get(world.path("resourceclaims", name))
    assert reply.code == 200, reply.body
    return reply.raw.partition(before)[2]


def value_at(text: bytes) -> Any:
    """Return the value at the beginning of a text, with half characters for bytes that are not Unicode."""
    value, _ = json.JSONDecoder().raw_decode(text.decode(errors="surrogateescape"))
    return value


def make_case(name: str) -> Any:
    """Return the parameter of a value; the double takes no value that Python cannot decode."""
    marks = [pytest.mark.needs("cluster")] if "cut" in EXPECTED[name] else []
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [make_case(name) for name in KEPT])
async def test_opaque_parameters_are_kept_as_they_are_written(world, target_run, name):
    expected = EXPECTED[name]
    claim, reply = await post(world, CASES[name], parameters=True)
    assert reply.code == 201, reply.message
    text = await read_text_after(world, claim, b'"parameters":{"a":')
    if not target_run.target.double:
        assert text.startswith(expected.get("served", "").encode() or CASES[name])
    if "cut" not in expected:
        # The double keeps values, and writes a number or a character in its own way.
        assert value_at(text) == value_at(CASES[name])


@pytest.mark.parametrize("name", [name for name in TEXTS if isinstance(EXPECTED[name]["read"], str)])
async def test_invalid_unicode_elsewhere_becomes_the_replacement_character(world, name):
    claim, reply = await post(world, CASES[name], parameters=False)
    assert reply.code == 201, reply.message
    text = await read_text_after(world, claim, b'"contract.drawbar.dev/a":')
    assert value_at(text) == EXPECTED[name]["read"]


@pytest.mark.parametrize("name", REFUSED)
async def test_invalid_json_is_refused(world, name):
    _, reply = await post(world, CASES[name], parameters=True)
    assert (reply.code, reply.reason) == (400, "BadRequest"), reply.body


@pytest.mark.parametrize("name", ["surrogate-high", "byte-ff"])
async def test_a_watch_sends_text_as_it_is_kept(world, name):
    listed = await world.api.get(world.path("resourceclaims"))
    async with world.api.watch(world.path("resourceclaims"), resourceVersion=listed.version) as changes:
        _, reply = await post(world, CASES[name], parameters=True)
        assert reply.code == 201, reply.message
        assert b'"parameters":{"a":' + CASES[name] in await changes.line()
