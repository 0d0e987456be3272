"""`make fuzz`: gives each parser inputs for some time, guided by the code that they reach.

    python tests/fuzz/run.py [--seconds 120] [--seed N] [NAME ...]

An input that raises anything but the parser's own refusal, takes 10 s or 2 GiB fails the run. It is printed, and kept in
the folder named at the end: add it to a corpus in `tests/cases`, or as a row of the parser's own test.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent import futures
from pathlib import Path

SECONDS = 120
INPUT_BYTES = 64 * 1024
INPUT_SECONDS = 10
MEMORY_MIB = 2048
WRONG_SEEDS = 200
# To start, to import, and to end.
GRACE_SECONDS = 120


def _arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make fuzz", description="give every parser of foreign text wrong input"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these parsers")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="for each parser (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="take the same inputs again; 0: a new seed")
    parser.add_argument("--child", metavar="FOLDER", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _fuzz(name: str, folder: Path, seconds: int, seed: int) -> None:
    """Run one parser in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=["drawbar"], enable_loader_override=False):
        from tests.fuzz import mutation, targets
    target, files, corpus = targets.TARGETS[name], folder / "files", folder / "corpus"
    files.mkdir()
    corpus.mkdir()
    # The fuzzer begins with short inputs, and finds what is long or deep late: some come along.
    choice = random.Random(seed)
    wrong = [mutation.mutate(choice.choice(target.seeds), targets.TOKENS, choice) for _ in range(WRONG_SEEDS)]
    for number, example in enumerate((*target.seeds, *wrong)):
        (corpus / f"seed-{number}").write_bytes(example)
    dictionary = folder / "tokens"
    words = ["".join(f"\\x{byte:02x}" for byte in token) for token in targets.TOKENS if len(token) < 64]
    dictionary.write_text("".join(f'"{word}"\n' for word in words))
    options = [
        f"-seed={seed}",
        f"-max_total_time={seconds}",
        f"-max_len={INPUT_BYTES}",
        f"-timeout={INPUT_SECONDS}",
        f"-rss_limit_mb={MEMORY_MIB}",
        f"-dict={dictionary}",
        f"-artifact_prefix={folder}/input-",
        str(corpus),
    ]

    def change(data: bytes, most: int, number: int) -> bytes:
        # By bytes alone, nearly every input is refused as malformed JSON.
        choice = random.Random(number)
        if choice.randrange(2):
            return mutation.mutate(data, targets.TOKENS, choice)[:most]
        return bytes(atheris.Mutate(data, most))

    atheris.Setup([name, *options], lambda raw: target.judge(raw, files), custom_mutator=change)
    atheris.Fuzz()


def _watch(name: str, folder: Path, options: argparse.Namespace, seed: int) -> str:
    """Run one parser in a process of its own; return why it failed, or an empty text."""
    folder.mkdir()
    command = [sys.executable, __file__, name, "--child", str(folder)]
    command += ["--seconds", str(options.seconds), "--seed", str(seed)]
    log = folder / "log"
    with log.open("wb") as file:
        try:
            status = subprocess.run(
                command, stdout=file, stderr=file, timeout=options.seconds + GRACE_SECONDS, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return f"did not end; see {log}"
    text = log.read_text(errors="replace")
    runs = re.findall(r"^(?:Done|#)\s*(\d+)", text, re.MULTILINE)
    _say(f"{name}: {runs[-1] if runs else 'no'} inputs, {'failed' if status else 'clean'}")
    if not status:
        return ""
    causes = re.findall(r"^(?:\w+(?:\.\w+)*(?:Error|Exception)\b.*|==\d+== ERROR.*)$", text, re.MULTILINE)
    inputs = [path.read_bytes()[:200] for path in sorted(folder.glob("input-*"))]
    return f"{causes[-1] if causes else f'status {status}'}; inputs {inputs}; see {folder}"


def main() -> int:
    """Fuzz, and return the exit status."""
    options = _arguments()
    sys.path.insert(0, str(Path(__file__).parents[2]))
    if options.child:
        _fuzz(options.names[0], options.child, options.seconds, options.seed)
        return 0
    from tests.fuzz import targets

    unknown = set(options.names) - targets.TARGETS.keys()
    if unknown:
        sys.stderr.write(
            f"error: no parser {', '.join(sorted(unknown))}; known: {', '.join(targets.TARGETS)}\n"
        )
        return 2
    seed = options.seed or random.SystemRandom().randrange(1, 1 << 31)
    names = options.names or list(targets.TARGETS)
    folder = Path(
        tempfile.mkdtemp(prefix="drawbar-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    )
    _say(f"== {len(names)} parsers, {options.seconds} s each; --seed {seed} takes the same inputs again")
    with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = dict(
            zip(names, pool.map(lambda name: _watch(name, folder / name, options, seed), names), strict=True)
        )
    failed = {name: reason for name, reason in outcomes.items() if reason}
    for name, reason in failed.items():
        sys.stderr.write(f"{name}: {reason}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
