"""The import-linter contract of pure modules, which are recognised by their places or by their docstrings.

Pure is every module that is named `plan` or lies in a folder `plans`, every planner of another name (`PLANNERS`), and every
module whose docstring has the word "pure" or "purely". The modules that a pure one imports, directly or not, are held to the same.
"""

import ast
import pathlib
import re

from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.domain import fields
from importlinter.domain.imports import ModuleExpression

_ROOT = pathlib.Path(__file__).parents[1]
PLANNERS = frozenset(
    {
        "drawbar.driver.controller.change_kinds",
        "drawbar.driver.controller.attachments.watches",
        "drawbar.driver.controller.classic.negotiation",
        "drawbar.driver.controller.immediate.decisions",
        "drawbar.driver.controller.leadership.deadlines",
        "drawbar.driver.controller.pools.desired",
        "drawbar.driver.healthmonitor.tainting",
        "drawbar.driver.node.watches",
    }
)
"""The planners and tables that have names of their own: pure whatever their docstrings say."""
_PURE = re.compile(r"\bpure(ly)?\b", re.IGNORECASE)


def is_pure(name: str, source: str) -> bool:
    """Whether the module of this full name and source text has to be pure."""
    *folders, last = name.split(".")
    is_planner = "plans" in folders or last == "plan" or name in PLANNERS
    return is_planner or bool(_PURE.search(ast.get_docstring(ast.parse(source)) or ""))


def pure_modules() -> set[str]:
    """Return the full names of all pure modules of the repository, packages left out."""
    paths = [path for path in _ROOT.glob("*/drawbar/**/*.py") if path.name != "__init__.py"]
    names = {".".join(path.relative_to(_ROOT).with_suffix("").parts[1:]): path for path in paths}
    return {name for name, path in names.items() if is_pure(name, path.read_text(encoding="utf-8"))}


class PureModules(ForbiddenContract):
    """Modules that declare themselves pure import none of the forbidden modules."""

    type_name = "pure"
    source_modules = fields.SetField(subfield=fields.ModuleExpressionField(), required=False)

    def check(self, graph, verbose):
        modules = self.source_modules or pure_modules() & graph.modules
        self.source_modules = {ModuleExpression(str(name)) for name in modules}
        return super().check(graph, verbose)
