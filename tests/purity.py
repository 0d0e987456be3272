"""The import-linter contract of pure modules, which are recognised by their names or by their docstrings.

Pure is every module that is named `plan` or lies in a folder `plans`, and every module whose docstring has the word
"pure" or "purely". What a pure module imports, directly or not, is held to the same.
"""

import ast
import pathlib
import re

from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.domain import fields
from importlinter.domain.imports import ModuleExpression

_ROOT = pathlib.Path(__file__).parents[1]
_PURE = re.compile(r"\bpure(ly)?\b", re.IGNORECASE)


def is_pure(name: str, source: str) -> bool:
    """Whether the module of this full name and source text has to be pure."""
    *folders, last = name.split(".")
    return (
        "plans" in folders or last == "plan" or bool(_PURE.search(ast.get_docstring(ast.parse(source)) or ""))
    )


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
