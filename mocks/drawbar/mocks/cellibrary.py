"""The parts of the CEL library that the doubles use.

The library's package imports a command line of its own with a terminal toolkit: 190 modules, and 0.3 s for each
program. Its compiled part and its standard functions do without.
"""

import importlib.machinery
import importlib.util
import sys
from typing import Any

_PACKAGE = "cel"


def _load(part: str) -> Any:
    """Return a module of the library without importing its package.

    Raises:
        ModuleNotFoundError: the library is not installed.
    """
    name = f"{_PACKAGE}.{part}"
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    package = importlib.util.find_spec(_PACKAGE)
    locations = package.submodule_search_locations if package is not None else None
    spec = importlib.machinery.PathFinder.find_spec(name, locations)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"no module named {name!r}: install common-expression-language")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


cel = _load("cel")
"""The compiled part."""
stdlib = _load("stdlib")
"""The functions beside the language's own; they import the compiled part."""
