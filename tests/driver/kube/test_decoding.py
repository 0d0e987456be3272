"""Objects with deeply nested values: they are read like all others, and can be worked with."""

import msgspec
import pytest

from drawbar.driver.api import demands
from drawbar.driver.kube import decoding

ODD = r'{"plain": "]}", "quoted": "\"[[[", "backslash": "\\"}'


def claim(levels):
    """Return a claim with parameters of so many levels, and a spec like them, which is not read."""
    nested = "[" * levels + "1" + "]" * levels
    config = (
        f'{{"devices": {{"config": [{{"opaque": {{"driver": "a", "parameters": {nested}}}}}, '
        '{"source": "later"}]}}'
    )
    metadata = f'{{"name": "c", "annotations": {ODD}}}'
    return f'{{"metadata": {metadata}, "spec": {config}, "status": {{"allocation": {config}}}}}'.encode()


def call_under_frames(frames, work):
    return call_under_frames(frames - 1, work) if frames else work()


@pytest.mark.parametrize("levels", [1, 50, *range(850, 1000, 10), 4900])
def test_an_object_that_is_nested_deeply_is_read_with_all_that_stands_beside(levels):
    decoded = decoding.decode(claim(levels), demands.Claim)
    assert decoded.metadata.annotations == {"plain": "]}", "quoted": '"[[[', "backslash": "\\"}
    assert [config.source for config in decoded.status.allocation.devices.config] == ["", "later"]
    again = decoding.decode(claim(levels), demands.Claim)
    # The caller that uses it has a deeper stack than the caller that read it.
    assert call_under_frames(40, lambda: decoded == again)
    assert call_under_frames(40, lambda: msgspec.json.encode(msgspec.to_builtins(decoded)))


def test_null_in_place_of_an_empty_list_is_an_empty_list():
    words = r'"\"conditions\":null"'
    device = (
        f'{{"driver": "net.example.com", "pool": "p", "device": "d", "conditions": null, "data": {words}}}'
    )
    parameters = f'{{"opaque": {{"driver": "a", "parameters": {{"a": null, "b": [null], "c": {words}}}}}}}'
    status = f'{{"devices":[{device}],"allocation":{{"devices":{{"config":[{parameters}]}}}}}}'
    body = f'{{"metadata":{{"name":"c"}},"spec":{{"devices":{{"requests":null}}}},"status":{status}}}'
    decoded = decoding.decode(body.encode(), demands.Claim)
    assert decoded.spec.devices.requests == ()
    assert [device.conditions for device in decoded.status.devices] == [()]
    (config,) = decoded.status.allocation.devices.config
    kept = msgspec.json.decode(msgspec.json.encode(config.opaque.parameters))
    assert kept == {"a": None, "b": [None], "c": '"conditions":null'}


@pytest.mark.parametrize("levels", [1, 600, 4900])
def test_null_for_a_list_is_read_however_deep_the_parameters_are(levels):
    body = claim(levels).replace(b'"spec": {"devices": {', b'"spec": {"devices": {"requests": null, ', 1)
    decoded = decoding.decode(body, demands.Claim)
    assert decoded.spec.devices.requests == ()
    assert [config.source for config in decoded.status.allocation.devices.config] == ["", "later"]


def test_other_malformed_fields_are_an_error():
    with pytest.raises(decoding.Malformed, match=r"metadata\.name"):
        decoding.decode(b'{"metadata": {"name": 5}, "status": {"devices": null}}', demands.Claim)


def test_only_values_nested_too_deeply_are_cut():
    def depth(value):
        return 1 + depth(value[0]) if isinstance(value, list) else 0

    def parameters(levels):
        decoded = decoding.decode(claim(levels), demands.Claim)
        return decoded.status.allocation.devices.config[0].opaque.parameters

    assert depth(parameters(500)) == 500
    assert parameters(501) is None
    # The object, its status, allocation, devices, configuration, entry and opaque stand around it.
    assert depth(parameters(2000)) == decoding.LEVELS_MAX - 7


@pytest.mark.parametrize("end", ["", "]" * 100, "}" * 3000, '"'])
def test_nested_deeply_and_broken_is_no_object(end):
    with pytest.raises(decoding.Malformed):
        decoding.decode(('{"metadata": ' + "[" * 2000 + end).encode(), demands.Claim)
