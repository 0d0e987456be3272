"""Log lines for people and for programs."""

import datetime
import io
import json
import logging
import subprocess
import sys

import pytest

from drawbar.driver import logs


@pytest.fixture
def logger():
    """Return a logger whose records reach no other handler."""
    return logging.Logger("test.of.logs", logging.INFO)  # noqa: LOG001 - pytest cannot report all that it says


def capture_log(logger, form):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter({"text": logs._Text, "json": logs._Json}[form]())
    logger.addHandler(handler)
    return stream


def test_values_follow_the_message_as_text(logger):
    stream = capture_log(logger, "text")
    logger.info("device is visible", extra={"address": "0000:01:00.0", "seconds": 1.5})
    assert stream.getvalue().endswith("INFO    logs: device is visible address=0000:01:00.0 seconds=1.5\n")


@pytest.mark.parametrize(
    ("value", "shown"),
    [("a b", '"a b"'), ("a\nb", '"a\\nb"'), ('"', '"\\""'), ("", '""'), ("k=v", '"k=v"'), ("ä", "ä")],
)
def test_a_value_that_could_be_misread_is_quoted(logger, value, shown):
    stream = capture_log(logger, "text")
    logger.info("m", extra={"value": value})
    assert stream.getvalue().endswith(f" value={shown}\n")


def test_foreign_text_begins_no_line_of_its_own(logger):
    stream = capture_log(logger, "text")
    logger.info("received: %s", "x\n2026-01-01 CRITICAL forged\r\nagain")
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("form", list(logs.Format))
def test_a_traceback_is_kept(logger, form):
    stream = capture_log(logger, form)
    try:
        {}["bug"]
    except KeyError:
        logger.exception("failed")
    assert "KeyError: 'bug'" in stream.getvalue()
    assert form == "text" or stream.getvalue().count("\n") == 1


def test_the_json_form_is_one_object_a_line_with_values_of_any_kind(logger):
    stream = capture_log(logger, "json")
    logger.warning("m %s", 1, extra={"path": logs, "number": 2})
    fields = json.loads(stream.getvalue())
    assert (fields["level"], fields["logger"], fields["message"], fields["number"]) == (
        "WARNING",
        "test.of.logs",
        "m 1",
        2,
    )


def test_no_value_poses_as_the_level_or_the_time(logger):
    stream = capture_log(logger, "json")
    logger.info("m", extra={"level": "CRITICAL", "ts": "never", "logger": "x"})
    fields = json.loads(stream.getvalue())
    assert (fields["level"], fields["logger"]) == ("INFO", "test.of.logs")
    assert fields["ts"] != "never"


def circular():
    value = {}
    value["itself"] = value
    return value


HOSTILE = {
    "a-value-that-holds-itself": lambda logger: logger.info("m", extra={"value": circular()}),
    "keys-that-are-no-text": lambda logger: logger.info("m", extra={"value": {(1, 2): 3}}),
    "bytes": lambda logger: logger.info("m", extra={"value": b"\xff\n"}),
    "lines": lambda logger: logger.info("received: %s", "x\n{}\r\n", extra={"value": "a\nb"}),
    "half-a-character": lambda logger: logger.info("m \ud800"),
    "a-stack": lambda logger: logger.info("m", stack_info=True),
    "not-a-number": lambda logger: logger.info("m", extra={"value": float("nan")}),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_every_record_is_one_line_of_json_with_the_same_four_fields(logger, case):
    stream = capture_log(logger, "json")
    HOSTILE[case](logger)
    (line,) = stream.getvalue().splitlines()
    fields = json.loads(line)
    assert list(fields)[:4] == ["ts", "level", "logger", "message"]
    assert datetime.datetime.fromisoformat(fields["ts"]).tzinfo is not None


def test_warnings_of_python_and_tracebacks_of_tasks_are_records_too():
    program = """
import asyncio, warnings
from drawbar.driver import logs
logs.configure("json", "WARNING")
warnings.warn("old", DeprecationWarning)
async def main():
    asyncio.get_running_loop().create_task(fail())
    await asyncio.sleep(0)
async def fail():
    raise KeyError("lost")
asyncio.run(main(), debug=False)
"""
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", program],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    records = [json.loads(line) for line in done.stderr.splitlines()]
    assert {record["logger"] for record in records} == {"py.warnings", "asyncio"}
    assert any("KeyError: 'lost'" in record.get("exception", "") for record in records)
