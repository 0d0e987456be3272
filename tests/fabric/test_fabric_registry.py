import sys

import pytest

from drawbar.fabric import errors, registry
from drawbar.fabric.grpc.adapter import GrpcAdapter


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that puts a package with one adapter entry point on the path, as pip does."""

    def add(name, value):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{name} = {value}\n")
        monkeypatch.syspath_prepend(tmp_path)

    return add


def test_the_grpc_adapter_is_found_by_name():
    assert registry.adapter_class("grpc") is GrpcAdapter


def test_an_adapter_of_another_package_is_found(install):
    install("acme", "drawbar.fabric.grpc.adapter:GrpcAdapter")
    assert "acme" in registry.adapter_names()
    assert registry.adapter_class("acme") is GrpcAdapter


def test_an_unknown_adapter_is_told_in_one_sentence_with_those_that_there_are():
    with pytest.raises(errors.InvalidConfiguration) as caught:
        registry.adapter_class("qrpc")
    (problem,) = caught.value.problems
    assert '"qrpc"' in problem
    assert "grpc" in problem.split("installed adapters:")[1]
    assert problem.endswith("give one of these, or install the package of its vendor")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("no_such_module_anywhere:Adapter", "cannot be loaded"),
        ("drawbar.fabric.grpc.adapter:NoSuchClass", "cannot be loaded"),
        ("drawbar.fabric.errors:FabricError", "is not a FabricAdapter"),
        ("drawbar.fabric.errors:cut", "is not a FabricAdapter"),
    ],
)
def test_a_broken_adapter_package_is_told_in_one_sentence(install, value, words):
    install("broken", value)
    with pytest.raises(errors.InvalidConfiguration, match=words) as caught:
        registry.adapter_class("broken")
    assert len(caught.value.problems) == 1
    assert "no_such_module_anywhere" not in sys.modules
