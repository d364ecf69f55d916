"""The parser of each command: it answers wrong arguments with one sentence that names the remedy.

Neither this module nor those that add arguments load PyTorch or the core.
"""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from recoup.commands.budget_arguments import OPTIONS
from recoup.commands.exit_codes import USAGE_ERROR
from recoup.hints import did_you_mean


class CommandParser(argparse.ArgumentParser):
    """The parser of `recoup` or of one of its commands.

    Its options use types of `recoup.commands.argument_types`, whose error messages continue the
    name of the option.
    """

    def __init__(self, *, usage: str, **settings: Any) -> None:
        # argparse raises its errors, so that `_sentence` can reword them.
        super().__init__(usage=usage, exit_on_error=False, **settings)
        self.usage_line = " or ".join(line.strip() for line in usage.splitlines())
        """The usage in one line."""

    def error(self, message: str) -> NoReturn:
        """Ends the process with one line on stderr and exit code 2."""
        if message.startswith("the following arguments are required"):
            message = f"{message}; usage: {self.usage_line}"
        self.exit(USAGE_ERROR, f"{self.prog}: error: {message}\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in argparse, but unknown arguments end the process."""
        try:
            found, unknown = super().parse_known_args(args, namespace)
        except argparse.ArgumentError as error:
            self.error(self._sentence(error))
        if unknown:
            self.error(self._unknown(unknown))
        return found, unknown

    def option_names(self) -> list[str]:
        """All options as the user writes them: --budget, -m."""
        return [name for action in self._actions for name in action.option_strings]

    def _sentence(self, error: argparse.ArgumentError) -> str:
        name, message = error.argument_name, error.message
        if name is None:
            return message
        if message.startswith("expected"):
            return f"{name} needs a value: {self._written(name)}"
        if message.startswith("ignored explicit argument"):
            return f"{name} takes no value: write {name} alone"
        return f"{name}{message}" if message.startswith(":") else f"{name} {message}"

    def _written(self, name: str) -> str:
        """An option with the placeholder of its value, as in `--help`."""
        action = next(each for each in self._actions if name in each.option_strings)
        metavar = action.metavar or action.dest.upper()
        return " ".join([name, *([metavar] if isinstance(metavar, str) else metavar)])

    def _unknown(self, words: Sequence[str]) -> str:
        option = next((word for word in words if word.startswith("-") and word != "--"), None)
        if option is None:
            return f"unexpected argument {words[0]!r}; usage: {self.usage_line}"
        name = option.partition("=")[0]
        field = name.removeprefix("--").replace("-", "_")
        if field in OPTIONS and "--option" in self.option_names():
            return f"unknown option {name}; write --option {field}=VALUE"
        found = did_you_mean(name, self.option_names())
        return f"unknown option {name}{found or f'; `{self.prog} --help` lists all options'}"
