"""`multimdm completion`: what a shell needs to complete commands, flags, recipes and checkpoints."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from multimdm.cli.flags import Flag, flags_of
from multimdm.cli.parsing import parse

Shell = Literal["bash", "zsh", "fish"]
_CHECKPOINTS = ("checkpoint", "checkpoints", "--init", "--teacher", "--quantile.teacher", "--base", "--judge")
_USUAL_PLACES = ("runs/*/model", "runs/*/*/model")
"""Where commands keep their models unless told otherwise."""


@dataclass(frozen=True)
class Options:
    """Print a script that completes commands, flags, their values, recipes and checkpoints at the press of Tab.

    bash: multimdm completion bash > ~/.local/share/bash-completion/completions/multimdm
    zsh:  multimdm completion zsh > a directory of your $fpath, under the name _multimdm
    fish: multimdm completion fish > ~/.config/fish/completions/multimdm.fish
    """

    shell: Annotated[Shell, tyro.conf.Positional]
    """The shell whose script is wanted."""


@dataclass(frozen=True)
class Command:
    """What can be completed after its name."""

    name: str
    help: str
    flags: tuple[Flag, ...]
    words: tuple[str, ...]
    """Recipes, or other words that its first argument may be."""
    checkpoints: bool
    """Whether its arguments are checkpoints."""


def main(arguments: Sequence[str]) -> None:
    """Parse the options and print."""
    options = parse(Options, arguments, "multimdm completion")
    print(SCRIPTS[options.shell](commands()), end="")


def commands() -> list[Command]:
    """All commands, with the recipes that come with the package now."""
    from multimdm.cli.main import COMMANDS
    from multimdm.training.shipped import by_command

    recipes = by_command()
    found = []
    for name, text in COMMANDS.items():
        flags = flags_of(name)
        positional = [flag for flag in flags if flag.positional]
        words = tuple(word for flag in positional for word in flag.values) or tuple(recipes.get(name, ()))
        checkpoints = any(flag.name in _CHECKPOINTS for flag in positional)
        found.append(Command(name, text, tuple(flag for flag in flags if not flag.positional), words, checkpoints))
    every_name = tuple(COMMANDS)
    return [*found, Command("help", "the same as COMMAND --help", (), every_name, False)]


def bash(table: Sequence[Command]) -> str:
    """A function that looks at the words before."""
    names, values, flags, rest = " ".join(c.name for c in table), [], [], []
    for command in table:
        for flag in command.flags:
            words = f'words="{" ".join(flag.values)}"'
            after = {"words": words, "checkpoints": "kind=checkpoints", "files": "kind=files"}.get(_after(flag))
            if after is not None:
                values.append(f"    '{command.name} {flag.name}') {after} ;;")
        flags.append(f'    {command.name}) words="{" ".join(flag.name for flag in command.flags)}" ;;')
        kind = "checkpoints" if command.checkpoints else "files"
        rest.append(f'    {command.name}) words="{" ".join(command.words)}"; kind={kind} ;;')
    return "\n".join(
        [
            "# Completion of multimdm for bash; made by `multimdm completion bash`.",
            "_multimdm() {",
            "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}",
            "  local words= kind= place",
            "  COMPREPLY=()",
            "  if ((COMP_CWORD == 1)); then",
            f'    words="{names} --help --version"',
            "  else",
            '    case "$command $before" in',
            *values,
            "    esac",
            "    if [[ -z $words$kind ]]; then",
            "      if [[ $current == -* ]]; then",
            "        case $command in",
            *(f"    {line}" for line in flags),
            "        esac",
            "      else",
            "        case $command in",
            *(f"    {line}" for line in rest),
            "        esac",
            "      fi",
            "    fi",
            "  fi",
            '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "  [[ -z $kind ]] && return",
            "  compopt -o filenames 2> /dev/null",
            "  if [[ $kind == files ]]; then",
            '    mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$current")',
            "    return",
            "  fi",
            '  mapfile -t COMPREPLY < <(compgen -d -- "$current")',
            f"  for place in {' '.join(_USUAL_PLACES)}; do",
            '    [[ -d $place && $place == "$current"* ]] && COMPREPLY+=("$place")',
            "  done",
            "}",
            "complete -F _multimdm multimdm",
            "",
        ]
    )


def zsh(table: Sequence[Command]) -> str:
    """The same, with a word on every command and flag."""
    values, flags, rest = [], [], []
    for command in table:
        for flag in command.flags:
            words = f"compadd -- {' '.join(flag.values)}"
            after = {"words": words, "checkpoints": "_multimdm_checkpoints", "files": "_files"}.get(_after(flag))
            if after is not None:
                values.append(f"    '{command.name} {flag.name}') {after}; return ;;")
        entries = " ".join(_quoted(f"{flag.name}:{flag.help}") for flag in command.flags)
        flags.append(f"      {command.name}) entries=({entries}) ;;")
        words = f"compadd -- {' '.join(command.words)}; " if command.words else ""
        rest.append(f"    {command.name}) {words}{'_multimdm_checkpoints' if command.checkpoints else '_files'} ;;")
    places = " ".join(f"{place}(N/)" for place in _USUAL_PLACES)
    return "\n".join(
        [
            "#compdef multimdm",
            "# Completion of multimdm for zsh; made by `multimdm completion zsh`.",
            "_multimdm_checkpoints() {",
            f"  local -a places=({places})",
            "  compadd -a places",
            "  _files -/",
            "}",
            "_multimdm() {",
            "  local -a entries",
            "  if ((CURRENT == 2)); then",
            f"    entries=({' '.join(_quoted(f'{c.name}:{c.help}') for c in table)})",
            "    _describe command entries",
            "    return",
            "  fi",
            '  case "$words[2] $words[CURRENT-1]" in',
            *values,
            "  esac",
            "  if [[ $words[CURRENT] == -* ]]; then",
            "    case $words[2] in",
            *flags,
            "    esac",
            "    _describe option entries",
            "    return",
            "  fi",
            "  case $words[2] in",
            *rest,
            "  esac",
            "}",
            'if [[ $funcstack[1] == _multimdm ]]; then _multimdm "$@"; else compdef _multimdm multimdm; fi',
            "",
        ]
    )


def fish(table: Sequence[Command]) -> str:
    """One line for everything that can be typed."""
    lines = [
        "# Completion of multimdm for fish; made by `multimdm completion fish`.",
        "function __multimdm_checkpoints",
        f"  for place in {' '.join(_USUAL_PLACES)}; echo $place; end",
        "  __fish_complete_directories",
        "end",
        "complete -c multimdm -n __fish_use_subcommand -f -l help -d 'the commands'",
        "complete -c multimdm -n __fish_use_subcommand -f -l version -d 'the version'",
    ]
    for command in table:
        here = f"complete -c multimdm -n '__fish_seen_subcommand_from {command.name}'"
        lines.append(f"complete -c multimdm -n __fish_use_subcommand -f -a {command.name} -d {_quoted(command.help)}")
        if command.words:
            lines.append(f"{here} -a '{' '.join(command.words)}'")
        if command.checkpoints:
            lines.append(f"{here} -f -a '(__multimdm_checkpoints)'")
        for flag in command.flags:
            words = f" -x -a '{' '.join(flag.values)}'"
            checkpoints = " -x -a '(__multimdm_checkpoints)'"
            after = {"words": words, "checkpoints": checkpoints, "files": " -r", "other": " -x", "nothing": ""}[
                _after(flag)
            ]
            lines.append(f"{here} -l {flag.name.removeprefix('--')}{after} -d {_quoted(flag.help)}")
    return "\n".join([*lines, ""])


def _after(flag: Flag) -> Literal["words", "checkpoints", "files", "other", "nothing"]:
    """What is to be offered behind a flag."""
    if flag.values:
        return "words"
    if flag.name in _CHECKPOINTS:
        return "checkpoints"
    if flag.takes == "path":
        return "files"
    return "nothing" if flag.takes == "nothing" else "other"


def _quoted(text: str) -> str:
    """The text in single quotes, in which none of the three shells expands anything."""
    return "'" + text.replace("\\", "").replace("'", "’") + "'"


SCRIPTS: Mapping[Shell, Callable[[Sequence[Command]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
