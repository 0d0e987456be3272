"""Failed exchanges as errors of the contract."""

import aiohttp
import pytest
import yarl

from drawbar.fabric import errors
from drawbar.fabric.redfish import decoding, failures


def exchange(base="http://fm.example:8080", **changes):
    return failures.Exchange(
        **{
            "what": "to read /z",
            "base": yarl.URL(base),
            "changes": False,
            "is_proven": True,
            "timeout_seconds": 5,
        }
        | changes
    )


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (TimeoutError(), errors.DeadlineExceeded, "did not answer within 5 s"),
        (aiohttp.ServerDisconnectedError(), errors.Unavailable, "closed the connection without an answer"),
        (aiohttp.ClientPayloadError("x"), errors.Unavailable, "its answer is not complete"),
        (decoding.Damaged("gzip"), errors.Unavailable, "its compressed answer is damaged"),
        (
            aiohttp.ClientOSError(104, "Connection reset by peer"),
            errors.Unavailable,
            "Connection reset by peer",
        ),
        (aiohttp.ClientConnectionError("x"), errors.Unavailable, "its answer is no HTTP"),
        (errors.PermissionDenied("no"), errors.PermissionDenied, "no"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
@pytest.mark.parametrize("changes", [False, True], ids=["read", "change"])
def test_a_failure_names_no_class_of_a_library(error, kind, words, changes):
    made = failures.translate(error, exchange(changes=changes))
    assert type(made) is kind
    assert words in made.message
    assert type(error).__name__ not in made.message
    assert made.side_effects_unknown is changes


@pytest.mark.parametrize(
    ("base", "is_proven", "words"),
    [
        ("http://fm.example", False, "put https:// into spec.endpoint"),
        ("https://fm.example", False, "one that it accepts into the Fabric's Secret"),
        ("http://fm.example", True, "without an answer"),
        ("https://fm.example", True, "without an answer"),
    ],
)
def test_the_first_connection_that_breaks_off_has_a_remedy_of_its_scheme(base, is_proven, words):
    error = failures.translate(aiohttp.ServerDisconnectedError(), exchange(base, is_proven=is_proven))
    assert error.message.endswith(words)
