import re

import pytest

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import parameters, profiles


def _config(endpoint="https://manager.example", credentials=None, timeout_seconds=30.0, **values):
    return contract.AdapterConfig(
        name="fab",
        endpoint=endpoint,
        parameters=values,
        timeout_seconds=timeout_seconds,
        credentials=credentials or contract.Credentials(),
    )


def test_everything_has_a_default():
    assert parameters.parse(_config()) == parameters.Parameters()


def test_every_parameter_can_be_set():
    values = {
        "profile": "h3",
        "fabrics": "A, B,",
        "ports": "8",
        "zoneBody": "endpoints",
        "etags": "no",
        "requestsAtOnce": "1",
        "pollSeconds": "5",
        "taskSeconds": "60",
    }
    assert parameters.parse(_config(**values)) == parameters.Parameters(
        profile="h3",
        fabrics=frozenset({"A", "B"}),
        ports=8,
        zone_body=profiles.ZoneBody.ENDPOINTS,
        uses_etags=False,
        requests_at_once=1,
        poll_seconds=5,
        task_seconds=60,
    )


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://manager.example",
        "https://manager.example/",
        "https://manager.example:8443/redfish/v1/",
        "https://[::1]:8443",
        "http://127.0.0.1:8000",
        "http://manager.example",
    ],
)
def test_an_endpoint_is_an_origin(endpoint):
    parameters.parse(_config(endpoint))


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (_config("//manager.example"), "not an address"),
        (_config("ftp://manager.example"), "not an address"),
        (_config("https://"), "not an address|not a URL"),
        (_config("https://manager.example:port"), "not a URL"),
        (_config("https://manager.example/other"), "has a path"),
        (_config("https://manager.example/?a=b"), "has a path"),
        (_config("https://manager.example/#a"), "has a path"),
        (_config("https://user@manager.example"), "user name or password"),
        (_config(credentials=contract.Credentials(username="u", password="p", token="t")), "one of the two"),
        (_config("http://manager.example", contract.Credentials(username="u", password="p")), "in the clear"),
        (_config("http://manager.example", contract.Credentials(token="t")), "in the clear"),
        (_config(timeout_seconds=0), "not positive"),
        (_config(zoneBody="array"), "give endpoints or links"),
        (_config(etags="never"), "give yes or no"),
        (_config(timeout_seconds=float("nan")), "not positive"),
        (_config(profile="other"), "unknown; there are"),
        (_config(fabrics=" , "), "names none"),
        (_config(ports="0"), "whole number"),
        (_config(ports="1000"), "whole number"),
        (_config(ports="9" * 5000), "whole number"),
        (_config(requestsAtOnce="17"), "from 1 to 16"),
        (_config(requestsAtOnce="0"), "from 1 to 16"),
        (_config(pollSeconds="1.5"), "whole number"),
        (_config(taskSeconds="ten"), "whole number"),
        (_config(taskSeconds="٣"), "whole number"),
        (_config(color="blue"), '"color" is unknown'),
    ],
)
def test_a_wrong_parameter_is_one_sentence(config, problem):
    with pytest.raises(errors.InvalidConfiguration) as caught:
        parameters.parse(config)
    (sentence,) = caught.value.problems
    assert re.search(problem, sentence)


def test_all_problems_are_listed_at_once():
    config = _config("ftp://x/path", ports="x", color="blue", timeout_seconds=-1)
    with pytest.raises(errors.InvalidConfiguration) as caught:
        parameters.parse(config)
    assert len(caught.value.problems) == 5


@pytest.mark.parametrize(
    "endpoint", ["https://user:secret@x/path", "https://user:secret@x:port", "ftp://:secret@"]
)
def test_a_password_in_the_endpoint_is_not_quoted(endpoint):
    with pytest.raises(errors.InvalidConfiguration) as caught:
        parameters.parse(_config(endpoint))
    assert "secret" not in str(caught.value)


def test_the_schema_describes_every_parameter_that_is_read():
    schema = parameters.schema()
    values = {
        "profile": "h3",
        "fabrics": "A,B",
        "ports": "8",
        "zoneBody": "links",
        "etags": "no",
        "requestsAtOnce": "2",
        "pollSeconds": "5",
        "taskSeconds": "60",
    }
    assert schema["properties"].keys() == values.keys()
    assert schema["additionalProperties"] is False
    for name, content in values.items():
        described = schema["properties"][name]
        assert described["description"]
        assert content in described.get("enum", [content])
        assert re.search(described.get("pattern", ""), content)


@pytest.mark.parametrize(("zone_body", "warns"), [(None, True), (profiles.ZoneBody.ENDPOINTS, False)])
def test_a_profile_is_called_untried_until_the_form_of_its_body_is_set(zone_body, warns):
    applied = parameters.Parameters(zone_body=zone_body).apply(profiles.PROFILES["h3"])
    assert bool(applied.unverified) is warns
