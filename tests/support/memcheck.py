"""Run tests under valgrind and report the errors of the engine.

    python tests/support/memcheck.py tests/model/test_predictor.py ...

Python, NumPy and the loader have errors of their own, which valgrind reports too: only those with
the engine on their stack count.
"""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

REPORT = Path("build", "valgrind.xml")
VALGRIND = ("valgrind", "--error-limit=no", "--num-callers=30", "--leak-check=no", "--xml=yes")


def main():
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.unlink(missing_ok=True)
    tests = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *sys.argv[1:]]
    environment = ("env", "PYTHONMALLOC=malloc", "OMP_NUM_THREADS=2")
    done = subprocess.run([*environment, *VALGRIND, f"--xml-file={REPORT}", *tests], check=False)
    report = ElementTree.parse(REPORT)
    ours = [error for error in report.iter("error") if _is_of_engine(error)]
    for error in ours:
        print(error.findtext("what") or error.findtext("xwhat/text"))
        for frame in error.find("stack"):
            print("   ", frame.findtext("fn"), frame.findtext("file"), frame.findtext("line"))
    print(f"valgrind: {len(ours)} errors of the engine, {len(list(report.iter('error')))} in all")
    sys.exit(done.returncode or bool(ours))


def _is_of_engine(error):
    return any("_engine" in (frame.findtext("obj") or "") for frame in error.iter("frame"))


if __name__ == "__main__":
    main()
