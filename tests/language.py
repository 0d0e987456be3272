"""What the rules of language of this repository forbid; `python tests/language.py` prints each offence.

Four rules, over all Python files, and the last one over documents, the chart and manifests, too:

- names: a variable is named after what it holds, so it is none of `NAMES`;
- constructors: a function is not called `of`, but `from_x`, `for_x` or `parse`;
- modules: a module is not called one of `MODULES`;
- phrases: comments, docstrings, messages and documents are literal; none of `PHRASES` stands in them.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMES = ("found", "known", "told", "one", "others", "nobody", "somebody")
MODULES = re.compile(
    r"(?:test_)?(?:chores|discretion|hall|journeys|lanes|lessons|lookout|nursery|parties|sayings|scribe|shelf|snare|spyglass"
    r"|telling|waits)"
)
PHRASES = (
    r"(?:is|are|was|were|be|been) told",
    r"tells? (?:us|it|them|what|that|whether|who|how)",
    r"believe[sd]?",
    r"hears?",
    r"nobody|somebody",
    r"who(?:ever)? wants",
    r"whose turn",
    r"goes without",
    r"the hands of",
    r"has a word|says? so",
    r"says (?:what|that|whether|who|how|it)",
    r"knows? (?:of|that|what|nothing)",
)
_TOKENS = re.compile(
    r"""(?P<text>[rbfuRBFU]{0,2}(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|\#[^\n]*)"""
    r"|(?P<constructor>\bdef of\b)"
    rf"|(?<![.\w])(?P<name>{'|'.join(NAMES)})\b(?!=[^=])",
    re.DOTALL,
)
_PHRASES = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b", re.IGNORECASE)
_DOCUMENTS = (".md", ".yaml", ".yml", ".tpl", ".txt", ".toml", ".proto")
# The exceptions: the rules themselves, generated code, and what former releases brought.
_LEFT_OUT = re.compile(
    r"^tests/(?:test_)?language\.|_pb2|^CHANGELOG\.md$|^requirements|^tests/data/|^tests/deploy/v0/"
)


def offences(path: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the rule and the words of each offence in a file of this repository."""
    if not path.endswith(".py"):
        yield from (("phrases", phrase) for phrase in _PHRASES.findall(text))
        return
    if MODULES.fullmatch(Path(path).stem):
        yield "modules", path
    for token in _TOKENS.finditer(text):
        if token["text"] is not None:
            yield from (("phrases", phrase) for phrase in _PHRASES.findall(token["text"]))
        elif token["constructor"] is not None:
            yield "constructors", "of"
        else:
            yield "names", token["name"]


def broken() -> list[str]:
    """Return each offence in the repository as `path: rule: words`."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [
        f"{path}: {rule}: {words}"
        for path in listed.stdout.splitlines()
        if path.endswith((".py", *_DOCUMENTS)) and not _LEFT_OUT.search(path) and (ROOT / path).is_file()
        for rule, words in offences(path, (ROOT / path).read_text(encoding="utf-8"))
    ]


if __name__ == "__main__":
    print("\n".join(broken()))  # noqa: T201 - the output of a script
