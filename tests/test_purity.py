"""Pure modules are recognised by themselves, and what breaks their contract is reported."""

import importlib.util
import itertools
from pathlib import Path

import grimp
import importlinter.configuration
import pytest

importlinter.configuration.configure()
_spec = importlib.util.spec_from_file_location("purity", Path(__file__).with_name("purity.py"))
purity = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(purity)


@pytest.mark.parametrize(
    ("name", "docstring", "pure"),
    [
        ("drawbar.driver.any.plan", "What follows.", True),
        ("drawbar.driver.any.plans.nodes", "What follows.", True),
        ("drawbar.driver.controller.pools.desired", "What follows.", True),
        ("drawbar.driver.any.taints", "Causes of taints; pure.", True),
        ("drawbar.driver.any.taints", "Decided purely.", True),
        ("drawbar.driver.any.planner", "Runs what `impure` code wants, on purpose.", False),
    ],
)
def test_a_module_is_pure_by_its_name_or_by_its_docstring(name, docstring, pure):
    assert purity.is_pure(name, f'"""{docstring}"""\n') is pure


def test_the_planners_of_the_product_are_among_the_pure_modules():
    planners = {"drawbar.driver.controller.attachments.plan", "drawbar.driver.cli.doctor.plans.nodes"}
    assert planners | purity.PLANNERS <= purity.pure_modules()


@pytest.mark.parametrize(
    "through", [(), ("drawbar.driver.files",)], ids=["directly", "through another module"]
)
def test_a_pure_module_that_imports_io_breaks_the_contract(through):
    graph = grimp.ImportGraph()
    chain = ["drawbar.driver.controller.attachments.plan", *through, "socket"]
    graph.add_module("socket", is_squashed=True)
    for importer, imported in itertools.pairwise(chain):
        graph.add_import(importer=importer, imported=imported)
    contract = purity.PureModules(
        name="pure",
        session_options={"root_packages": ["drawbar.driver"], "include_external_packages": "True"},
        contract_options={"forbidden_modules": ["socket"]},
    )
    assert not contract.check(graph, verbose=False).kept
