"""The ``ltls`` command: its commands are imported when they are run, errors are one line."""

from __future__ import annotations

import errno
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from ..core.version import __version__
from .output import print_line, set_verbosity, warnings_as_lines

INTERRUPTED = 130  # exit code after Ctrl-C
_TERMINATED = 143  # after SIGTERM
_AGAIN_S = 0.05  # until a signal that was ignored is sent again


@dataclass(frozen=True)
class LazyCommand:
    """A command: the module with a function of its name, a line of help, and examples."""

    name: str
    module: str
    help: str
    examples: tuple[str, ...]

    @cache  # noqa: B019
    def load(self) -> Any:
        """Import the module of the command and return the command."""
        function = getattr(importlib.import_module(self.module, __package__), self.name)
        alone = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        alone.command(self.name, epilog=_epilog(self.examples))(function)
        return typer.main.get_command(alone)


COMMANDS = (
    LazyCommand(
        "train",
        ".train",
        "Train a model on files of labelled rows.",
        (
            "ltls train train.txt.gz -o model.ltls --width 8 --set trellises.n_trellises=3",
            "ltls train tickets.csv --text text --label category -o tickets.ltls",
            "ltls train orders.csv --text item --number price --label tax -o tax.ltls",
            "ltls train posts.jsonl --text body --label tags -o posts.ltls --epochs 10",
            "ltls train posts.csv --text body --label tags --separator ';' -o posts.ltls",
            "ltls train big.txt -o big.ltls --checkpoint big.checkpoint --resume",
        ),
    ),
    LazyCommand(
        "predict",
        ".predict",
        "Predict the k best labels of every row.",
        (
            "ltls predict model.ltls test.txt -k 3 -o predictions.tsv",
            "ltls predict tickets.ltls new.csv --proba --json",
            "echo 'my card is lost' | ltls predict tickets.ltls - --text",
        ),
    ),
    LazyCommand(
        "evaluate",
        ".evaluate",
        "Evaluate a model on labelled rows.",
        (
            "ltls evaluate model.ltls test.txt -k 1,5,10",
            "ltls evaluate tickets.ltls test.csv --report report.html",
        ),
    ),
    LazyCommand(
        "explain",
        ".explain",
        "Explain the best labels of a text or a row.",
        (
            "ltls explain tickets.ltls 'my card is lost'",
            "ltls explain tickets.ltls 'my card is lost' --html card.html",
            'ltls explain tax.ltls \'{"item": "tea", "price": 4.5}\'',
            "ltls explain model.ltls '3:0.5 17:1' -k 1 --json",
        ),
    ),
    LazyCommand(
        "convert",
        ".convert",
        "Convert a data file or a model.",
        (
            "ltls convert model.ltls small.ltls --size-budget 1MB",
            "ltls convert train.txt train.svm.gz",
            "ltls convert tickets.csv tickets.jsonl --text text --label category",
        ),
    ),
    LazyCommand(
        "serve",
        "..serve.command",
        "Serve models over HTTP, with a page to try them.",
        (
            "ltls serve tickets.ltls",
            "ltls serve tickets.ltls products.ltls --host 0.0.0.0 --port 80 --workers 4",
        ),
    ),
    LazyCommand(
        "info",
        ".info",
        "Show what a model file contains.",
        ("ltls info model.ltls",),
    ),
    LazyCommand(
        "settings", ".settings", "List all settings of training.", ("ltls settings trellises",)
    ),
)


class _Commands(TyperGroup):
    """The group of `COMMANDS`; listing them imports nothing."""

    by_name = {command.name: command for command in COMMANDS}  # noqa: RUF012

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.by_name)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a placeholder with the help of a command, for lists and shell completion."""
        command = self.by_name.get(cmd_name)
        return command and TyperCommand(cmd_name, help=command.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is to be run, imported."""
        close = get_close_matches(args[0], self.by_name, 1) if args else []
        if close and args[0] not in self.by_name:
            ctx.fail(f"No such command {args[0]!r} (did you mean {close[0]!r}?)")
        name, command, rest = super().resolve_command(ctx, args)
        if command is None:
            return name, None, rest
        return name, self.by_name[str(command.name)].load(), rest


def _epilog(lines: tuple[str, ...]) -> str:
    r"""Return an epilog that shows command lines; \b keeps them from being wrapped."""
    title = "Examples:" if len(lines) > 1 else "Example:"
    return "\n".join(["\b", title, *(f"  {line}" for line in lines)])


app = typer.Typer(
    cls=_Commands,
    help="Classification among very many classes in logarithmic time and space.",
    epilog=_epilog(
        (
            "ltls train tickets.csv --text text --label category -o tickets.ltls",
            "ltls evaluate tickets.ltls test.csv",
            "echo 'my card is lost' | ltls predict tickets.ltls - --text",
        )
    ),
    rich_markup_mode=None,  # panels truncate the names of options
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"ltls {__version__}")
        raise typer.Exit


@app.callback()
def _app(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line of this process, and exit."""
    if sys.getfilesystemencoding() == "ascii":  # every other character would be a surrogate
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    prepare_standard_streams()
    words = sys.argv[1:] or ["--help"]
    # --text may have no value: then every line is a text.
    sys.exit(
        run(
            app,
            [
                "--text=" if word == "--text" and after.startswith("-") else word
                for word, after in pairwise([*words, "-"])
            ],
        )
    )


class Terminated(BaseException):
    """The process was asked to end by SIGTERM."""


class _ClosedStream(io.TextIOBase):
    """A standard stream that is closed, as by ``>&-``: using it is an error."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _fail(self, *_: Any) -> NoReturn:
        raise OSError(errno.EBADF, "the stream is closed", self._name)

    read = write = _fail
    buffer = property(_fail)


def prepare_standard_streams() -> None:
    """Make standard streams UTF-8 in every locale; using a closed stream raises an error."""
    for name in ("stdin", "stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is None:
            free = os.open(os.devnull, os.O_RDWR)  # no other file may get its number
            full_name = f"standard {'input' if name == 'stdin' else 'output'}"
            closed = open(free, "w") if name == "stderr" else _ClosedStream(full_name)  # noqa: SIM115
            setattr(sys, name, closed)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def run(app: typer.Typer, arguments: list[str]) -> int:
    """Run a command line and return its exit code; an error is one line on standard error."""
    set_verbosity(verbose=False)
    try:
        with warnings_as_lines(), _clean_termination():
            code = app(arguments, prog_name="ltls", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:  # the reader of standard output has closed it
        code = 1
    except BaseException as error:
        code = code_of_signal(error)
        if not code:
            if not isinstance(error, Exception):
                raise
            print_line(_message(error))
            code = 2
    _drop_unwritten()
    return code


def code_of_signal(error: BaseException) -> int:
    """Return the exit code of the signal behind an exception, or 0.

    Libraries, and Python's own locks, may raise an error of their own in place of a signal's.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (KeyboardInterrupt, typer.Abort)):
            return INTERRUPTED
        if isinstance(cause, Terminated):
            return _TERMINATED
        cause = cause.__context__
    return 0


@contextmanager
def _clean_termination() -> Iterator[None]:
    """Let SIGTERM end the command as an error does: unfinished files are removed."""
    again: list[threading.Timer] = []

    def terminate(*_: object) -> NoReturn:
        raise Terminated

    def unraisable(ignored: sys.UnraisableHookArgs) -> None:
        """Send the signal again: Python ignores exceptions in finalizers and callbacks."""
        if ignored.exc_type is not Terminated:
            hook(ignored)
            return
        again.append(threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGTERM)))
        again[-1].start()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, hook = signal.signal(signal.SIGTERM, terminate), sys.unraisablehook
    sys.unraisablehook = unraisable
    try:
        yield
        for timer in again:
            timer.join()
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, before)


def _message(error: Exception) -> str:
    """Return the message of an error that a user can cause; raise any other, which is a bug."""
    if hasattr(error, "format_message"):  # wrong arguments; of click, or of typer's copy of it
        command = getattr(getattr(error, "ctx", None), "command_path", "ltls")
        others = ", and ltls settings for --set" if command == "ltls train" else ""
        return f"{error.format_message().rstrip('.')}; see {command} --help{others}"
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror
        if error.errno in (errno.ENOSPC, errno.EFBIG):
            reason += "; free some space, or write elsewhere"
        # File errors have a name, except when standard output is full.
        name = error.filename or ("standard output" if error.errno == errno.ENOSPC else None)
        return f"{name}: {reason}" if name else reason
    if isinstance(error, MemoryError):
        return f"not enough memory: {error}"
    if isinstance(error, (ValueError, OSError, OverflowError)):
        from ..io.errors import RowError

        if not isinstance(error, RowError):
            return str(error)
        fix = "or fix the row" if error.kind == "encoding" else "fix it"
        return f"{error}; {fix}, or skip such rows with --skip-bad-rows"
    raise error


def _drop_unwritten() -> None:
    """Let Python exit quietly if standard output can no longer be written."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
