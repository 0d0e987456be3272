"""The reference pages are those of the catalogue, and the catalogue is the only home of a reason."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from drawbar.driver.catalogue import attachment_conditions, events, fabric_conditions, reasons, taints

ROOT = Path(__file__).parents[2]
DRIVER = ROOT / "driver" / "drawbar" / "driver"
TABLES = (*attachment_conditions.TABLES, *fabric_conditions.TABLES, *events.TABLES)
REASONS = {value for name, value in vars(reasons).items() if name.isupper()}
COMPOUND = {reason for reason in REASONS if re.search(r"[a-z][A-Z]", reason)}
# Also the type of a condition, and a state that `drawbar status` shows.
HOMONYMS = {"HostsMapped", "InUse"}


def generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("path", "text"), [pytest.param(*item, id=item[0]) for item in generator().files().items()]
)
def test_a_file_is_as_the_tables_make_it(path, text):
    assert (ROOT / path).read_text() == text, "run make generate"


def test_every_reason_has_a_row():
    assert {row.reason for table in TABLES for row in table.rows} == REASONS


def test_the_name_of_a_metric_shows_its_type():
    """The page of metrics tells readers so, in place of a type for each."""
    suffixes = {"counter": "_total", "histogram": "_duration_seconds"}
    for described in generator().described_metrics().values():
        for name, metric in described.list_described().items():
            shown = [kind for kind, suffix in suffixes.items() if name.endswith(suffix)] or ["gauge"]
            assert shown == [metric.kind], name


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_a_table_has_each_reason_once_and_a_remedy_for_each_fault(table):
    assert len(table.reasons) == len(table.rows)
    assert [row.reason for row in table.rows if row.severity == "error" and not row.remedy] == []


def test_the_pages_that_a_remedy_refers_to_have_that_heading():
    rows = [row for table in TABLES for row in table.rows]
    for page in {row.page for row in [*rows, *taints.TAINTS] if row.page}:
        name, _, anchor = page.partition("#")
        text = (ROOT / "docs" / name).read_text()
        headings = {
            re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        }
        assert not anchor or anchor in headings, page


def test_no_module_has_a_reason_of_its_own():
    texts = {
        f"{path.relative_to(DRIVER)}: {node.value}"
        for path in DRIVER.rglob("*.py")
        if path.parent != DRIVER / "catalogue"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in COMPOUND - HOMONYMS
    }
    assert texts == set()


def test_no_module_has_a_taint_of_its_own():
    keys = {key for key in taints.KEYS if "-" in key}
    texts = {
        f"{path.relative_to(DRIVER)}: {node.value}"
        for path in DRIVER.rglob("*.py")
        if path.parent != DRIVER / "catalogue"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in keys
    }
    # The type of a claim's condition.
    assert texts == {"api/bindings.py: attach-failed"}
