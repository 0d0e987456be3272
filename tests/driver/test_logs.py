"""Log lines for people and for programs."""

import io
import json
import logging

import pytest

from drawbar.driver import logs


@pytest.fixture
def logger():
    """A logger of its own, and what it wrote by form."""
    found = logging.getLogger("test.of.logs")
    found.propagate = False
    found.setLevel(logging.INFO)
    yield found
    found.handlers.clear()


def written(logger, form):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter({"text": logs._Text, "json": logs._Json}[form]())
    logger.addHandler(handler)
    return stream


def test_values_follow_the_message_as_text(logger):
    stream = written(logger, "text")
    logger.info("device is visible", extra={"address": "0000:01:00.0", "seconds": 1.5})
    assert stream.getvalue().endswith("INFO    logs: device is visible address=0000:01:00.0 seconds=1.5\n")


@pytest.mark.parametrize(
    ("value", "shown"),
    [("a b", '"a b"'), ("a\nb", '"a\\nb"'), ('"', '"\\""'), ("", '""'), ("k=v", '"k=v"'), ("ä", "ä")],
)
def test_a_value_that_could_be_misread_is_quoted(logger, value, shown):
    stream = written(logger, "text")
    logger.info("m", extra={"value": value})
    assert stream.getvalue().endswith(f" value={shown}\n")


def test_foreign_text_begins_no_line_of_its_own(logger):
    stream = written(logger, "text")
    logger.info("said: %s", "x\n2026-01-01 CRITICAL forged\r\nagain")
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("form", logs.FORMATS)
def test_a_traceback_is_kept(logger, form):
    stream = written(logger, form)
    try:
        {}["bug"]
    except KeyError:
        logger.exception("failed")
    assert "KeyError: 'bug'" in stream.getvalue()
    assert form == "text" or stream.getvalue().count("\n") == 1


def test_the_json_form_is_one_object_a_line_with_values_of_any_kind(logger):
    stream = written(logger, "json")
    logger.warning("m %s", 1, extra={"path": logs, "number": 2})
    fields = json.loads(stream.getvalue())
    assert (fields["level"], fields["logger"], fields["message"], fields["number"]) == (
        "WARNING",
        "test.of.logs",
        "m 1",
        2,
    )


def test_no_value_poses_as_the_level_or_the_time(logger):
    stream = written(logger, "json")
    logger.info("m", extra={"level": "CRITICAL", "time": "never"})
    fields = json.loads(stream.getvalue())
    assert fields["level"] == "INFO"
    assert fields["time"] != "never"
