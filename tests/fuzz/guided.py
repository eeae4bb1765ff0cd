"""Fuzzing that is guided by coverage: atheris keeps the inputs that reach new lines of ltls.

    python -m tests.fuzz.guided [--seconds 60] [target ...]

What it keeps goes to build/guided, a folder per target: `python -m tests.fuzz --replay` runs it
against a build with sanitizers. Model files and checkpoints are changed in their parts and sealed
again, since their checksums would reject all other changes.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.fuzz.__main__ import IN_MEMORY, target_of

CORPUS = Path("build", "guided")
TARGETS = ("model_files", "checkpoints", "readers", "matrices")
N_SEEDS = 60


def seeds(name):
    """Return generated inputs to start from, by their suffix, as atheris knows only contents."""
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(N_SEEDS):
            suffix, content = target_of(name).generate(np.random.default_rng(number), scratch)
            found.setdefault(suffix, []).append(content)
    return found


def fuzz(name, suffix, folder, seconds):
    """Run a target in this process until time is up; a finding ends the process."""
    import atheris

    with atheris.instrument_imports(include=["ltls"]):
        target = target_of(name)
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as scratch:

        def run(content):
            if content:  # libFuzzer begins with nothing
                target.run(content, Path(scratch, f"input{suffix}"))

        def change(content, max_size, seed):
            try:
                changed = target.mutate(np.random.default_rng(seed), content, scratch)
            except (ValueError, KeyError):  # nothing that could be changed in its parts
                changed = atheris.Mutate(content, max_size)
            return changed[:max_size]

        limits = [f"-max_total_time={max(1, int(seconds))}", "-timeout=5", "-max_len=131072"]
        options = [*limits, "-len_control=0", f"-artifact_prefix={CORPUS}/{name}-"]
        atheris.Setup([sys.argv[0], *options, folder], run, custom_mutator=change)
        atheris.Fuzz()


def campaign(name, seconds):
    """Run a target for each of its suffixes; return whether something was found."""
    found, parts = False, seeds(name)
    (CORPUS / name).mkdir(parents=True, exist_ok=True)
    for suffix, contents in parts.items():
        with tempfile.TemporaryDirectory() as folder:
            for number, content in enumerate(contents):
                Path(folder, f"seed{number}").write_bytes(content)
            words = ("--worker", name, suffix, folder, str(seconds / len(parts)))
            done = subprocess.run(
                [sys.executable, "-m", "tests.fuzz.guided", *words],
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
            kept = list(Path(folder).iterdir())
            for path in kept:
                (CORPUS / name / f"{path.name}{suffix}").write_bytes(path.read_bytes())
        print(f"{name}{suffix}: {len(kept)} inputs kept, {'FOUND' if done.returncode else 'clean'}")
        if done.returncode:
            print(done.stderr[-2000:])
            found = True
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="target", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=float, default=60, help="for each target")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, suffix, folder, seconds = options.worker
        fuzz(name, suffix, folder, float(seconds))
        return
    found = [campaign(name, options.seconds) for name in options.targets or TARGETS]
    sys.exit(any(found))


if __name__ == "__main__":
    main()
