"""Whatever others write, a terminal gets printable characters and the codes of our own tables."""

import contextlib
import io
import json
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich import table, text

from drawbar.driver import logs, main, output

HOSTILE = "\x1b]0;owned\x07 \x9b31m \u202egpj.exe \ud800 \x00 [link=http://evil]here[/link] :boom:\rover"


def is_safe(written):
    return all(letter.isprintable() or letter in "\n\t" for letter in written)


@pytest.fixture
def streams(monkeypatch):
    """Return a function that sets the encoding of the standard streams and returns their bytes."""

    def replace_streams(encoding="utf-8"):
        raw = io.BytesIO(), io.BytesIO()
        for name, file in zip(("stdout", "stderr"), raw, strict=True):
            monkeypatch.setattr(sys, name, io.TextIOWrapper(file, encoding=encoding, write_through=True))
        return raw

    return replace_streams


@given(st.text())
def test_printable_text_has_no_control_characters_and_keeps_its_lines(content):
    shown = output.printable(content)
    assert is_safe(shown)
    assert len(shown) == len(content)
    assert shown.count("\n") == content.count("\n")
    assert output.printable(shown) == shown


@given(st.text())
def test_one_line_of_foreign_text_is_printable_as_a_whole(content):
    shown = output.one_line(content)
    assert shown.isprintable()
    assert len(shown) == len(content)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_both_streams_print_foreign_text_cleaned_in_any_encoding(streams, encoding):
    raw = streams(encoding)
    with output.guard_output():
        sys.stdout.write(f"{HOSTILE} ä€\n")
        sys.stderr.writelines([HOSTILE, " ä€\n"])
    for file in raw:
        written = file.getvalue().decode(encoding)
        assert is_safe(written)
        assert written.endswith("\n")
        assert "gpj.exe" in written


@pytest.mark.parametrize("missing", [None, io.StringIO()], ids=["missing", "closed"])
def test_a_missing_stream_is_empty_and_prints_nothing(monkeypatch, missing):
    if missing is not None:
        missing.close()
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, missing)
    with output.guard_output():
        sys.stdout.write("a line\n")
        sys.stderr.write("an error\n")
        assert (sys.stdin.isatty(), sys.stdin.readline()) == (False, "")
    assert sys.stdin is missing


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_table_of_foreign_text_has_no_codes_but_its_own(streams, encoding):
    raw, _ = streams(encoding)
    with output.guard_output():
        out = output.console(width=200)
        shown = table.Table("name")
        shown.add_row(text.Text(HOSTILE, style="red"))
        shown.add_row(HOSTILE)
        out.print(shown)
        out.print(HOSTILE, style="yellow")
    written = raw.getvalue().decode(encoding)
    assert is_safe(written)
    assert "[link=http://evil]here" in written, "foreign text is no markup"
    assert ":boom:" in written


@pytest.mark.parametrize(
    ("encoding", "written"), [("utf-8", "✗ ✓ · é"), ("latin-1", "x + · é"), ("ascii", "x + - ?")]
)
def test_each_mark_stays_apart_from_the_unchecked_one_in_any_encoding(streams, encoding, written):
    raw, _ = streams(encoding)
    with output.guard_output():
        output.console(width=80).print("✗ ✓ · é")
    assert raw.getvalue().decode(encoding) == f"{written}\n"


def test_the_console_keeps_its_own_codes_on_a_terminal(streams, monkeypatch):
    raw, _ = streams()
    monkeypatch.setenv("FORCE_COLOR", "1")
    with output.guard_output():
        output.console(width=80).print(text.Text("\x1b[5mx", style="red"))
    written = raw.getvalue()
    assert b"\x1b[31m?[5mx\x1b[0m" in written


def test_without_colours_the_console_draws_no_code_at_all_on_a_terminal(streams, monkeypatch):
    raw, _ = streams()
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    with output.guard_output():
        output.console(width=80).print(text.Text("x", style="bold red link http://a"))
    assert raw.getvalue() == b"x\n"


@given(st.text().filter(lambda content: not any(0xD800 <= ord(letter) < 0xE000 for letter in content)))
def test_a_json_document_has_every_character_in_ascii(content):
    document = json.dumps({"name": content}, ensure_ascii=False).encode()
    escaped = output.ascii_json(document)
    assert escaped.isascii()
    assert is_safe(escaped)
    assert json.loads(escaped) == {"name": content}


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_log_line_of_foreign_text_is_one_line_of_printable_characters(capsys, form):
    forged = f"{HOSTILE}\n2026-01-01T00:00:00.000+00:00 INFO forged"
    logs.configure(form)
    logging.getLogger("x").error("cannot: %s", forged, extra={"device": forged}, exc_info=ValueError(forged))
    written = capsys.readouterr().err
    assert is_safe(written)
    assert not [line for line in written.splitlines()[1:] if not line.startswith("    ")]


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--kubeconfig", HOSTILE.replace("\x00", "").replace("\ud800", "")],
        ["fabric", "devices", "--config", "/nowhere/\x1b[2J\u202e"],
        ["\x1b[2J"],
        ["explain", "pod/\x1b[2J\u202e", "--kubeconfig", "/nowhere"],
    ],
    ids=["a path", "a file", "a verb", "a name"],
)
def test_an_error_that_quotes_foreign_text_is_printable(streams, arguments):
    raw = streams()
    with contextlib.suppress(SystemExit):
        assert main.main(arguments) != 0
    for file in raw:
        assert is_safe(file.getvalue().decode())
    assert raw[1].getvalue()
