"""A group of commands whose modules are imported only when a command is run."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True)
class LazyCommand:
    """A command of the terminal.

    Parameters
    ----------
    name : str
        The command. The function of that name in `module` is run.
    module : str
        The module, relative to this package.
    help : str
        One line for the list of commands.
    examples : tuple of str
        Command lines for its help.
    """

    name: str
    module: str
    help: str
    examples: tuple[str, ...]

    def load(self) -> Any:
        """Import the module of the command and return the command."""
        module = importlib.import_module(self.module, __package__)
        app = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        app.command(self.name, cls=Command, epilog=epilog(self.examples))(
            getattr(module, self.name)
        )
        return typer.main.get_command(app)


class LazyGroup(TyperGroup):
    """The commands of `commands`; listing them imports nothing."""

    commands_by_name: dict[str, LazyCommand]

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return list(self.commands_by_name)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a placeholder with the help of a command, for lists and shell completion."""
        command = self.commands_by_name.get(cmd_name)
        return command and TyperCommand(cmd_name, help=command.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is to be run, imported."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and self.commands_by_name[str(command.name)].load(), rest


class Command(TyperCommand):
    """A command whose ``--text`` may have no value: then every line is a text."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line; ``--text`` before another option becomes ``--text=``.

        So it does before the last file, which is not the name of a column then.
        """
        words = [
            "--text=" if word == "--text" and after.startswith("-") else word
            for word, after in pairwise([*args, "-"])
        ]
        try:
            return super().parse_args(ctx, list(words))
        except Exception as error:  # of click, or of typer's copy of it
            missing = getattr(getattr(error, "param", None), "name", None)
            if missing not in ("file", "files") or "--text" not in words:
                raise
            return super().parse_args(
                ctx, ["--text=" if word == "--text" else word for word in words]
            )


def epilog(lines: tuple[str, ...]) -> str:
    r"""Return an epilog that shows command lines; \b keeps them from being wrapped."""
    return "\n".join(
        ["\b", "Examples:" if len(lines) > 1 else "Example:", *(f"  {line}" for line in lines)]
    )
