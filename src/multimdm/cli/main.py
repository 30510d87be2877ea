"""`multimdm`: the table of commands. A command's module is imported only when it is called."""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from keyword import iskeyword
from typing import NamedTuple

import multimdm
from multimdm._hints import hint
from multimdm._inert import inert
from multimdm._stopping import TerminatedError, ToldInterrupt, terminable

COMMANDS = {
    "quickstart": "train, adapt, distil, generate and compare on the built-in corpus: the whole story in minutes",
    "prepare": "turn text into sequences of tokens that training reads: files or Hub data sets, any tokenizer",
    "train-text": "make a few-step generator of your own text in one command: teacher, model, samples",
    "pretrain": "train a model from random weights: MDLM, DUO, MultiMDM or autoregressive, by a recipe",
    "adapt": "continue a masked diffusion model with many masks (MultiMDM-cont), by a recipe",
    "couple": "turn an autoregressive model into a writer of few calls by quantile noise, by a recipe",
    "distill": "make a few-step generator of a trained model: consistency, DUO's DCD or SDTT, by a recipe",
    "sample": "draw texts from a checkpoint: unconditional, after a prompt, or with gaps filled in",
    "evaluate": "measure a checkpoint: GenPPL, entropy and variety of its samples at several K, and its NELBO",
    "pareto": "compare checkpoints: perplexity against entropy, pictures and the paper's tables",
    "reproduce": "run a table or figure of the paper from its specification: train, distil, measure, compare",
    "entropy": "what coupled paths tell of the clean token (Fig. conditional_entropy); pictures of the processes",
    "recipes": "list the recipes that come with the package, with a word on each",
    "models": "list the models that come with the package, with their cards: how each was made, what it can do",
    "info": "tell what a checkpoint is: sizes, process, tokenizer, how it came to be, how it wants to be sampled",
    "import": "read a checkpoint of MDLM or DUO (the Hub's layout, or a Lightning .ckpt) into our format",
    "serve": "answer OpenAI's clients over HTTP, and show text being drafted on a page",
    "push": "give a checkpoint to the Hugging Face Hub, with a model card made from its lineage",
    "card": "write the model card of a checkpoint: what it is, how it was made and sampled, its figures",
    "export": "write an imported checkpoint back in the layout it came from",
    "completion": "print a script that completes commands, flags, recipes and checkpoints in bash, zsh or fish",
}
"""Name -> what it does; `open_command` says where."""
RECIPE_COMMANDS = ("pretrain", "adapt", "couple", "distill")
"""The commands that train by a recipe."""


_GOES_ON = "; the same command goes on"
_AFTERWARDS = {
    **dict.fromkeys(("quickstart", "train-text", "reproduce", "pareto"), _GOES_ON),
    **dict.fromkeys(RECIPE_COMMANDS, "; the same command goes on from what was saved"),
    "evaluate": "; with --out, the same command goes on from what was measured",
    "prepare": "; what was finished is kept, and the same command goes on",
}
"""What is said of a command that was stopped at once, where nothing was to be finished first."""


class Command(NamedTuple):
    """A command whose module has been imported."""

    options: type
    run: Callable[[Sequence[str]], None]


def open_command(name: str) -> Command:
    """Import a command: `Options` and `main` of the module that has its name, or the row of those that train."""
    if name in RECIPE_COMMANDS:
        training = importlib.import_module("multimdm.cli.training")
        return Command(training.OPTIONS[name], partial(training.main, name))
    plain = name.replace("-", "_")
    module = importlib.import_module(f"multimdm.cli.{plain}_" if iskeyword(plain) else f"multimdm.cli.{plain}")
    return Command(module.Options, module.main)


def usage() -> str:
    """What `multimdm --help` prints."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "Few-step diffusion language models.",
            "",
            "usage: multimdm COMMAND [options]      multimdm help COMMAND tells its options",
            "",
            "commands:",
            *lines,
            "",
            "options:",
            "  --help     this text",
            "  --version  the version",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 if it went well, 2 if it was called wrongly, 141 if who reads its output left, as `head`.

    What is asked to stop brings its work to a place from which it can go on, and leaves with 130 (SIGINT), 143
    (SIGTERM) or 138 (SIGUSR1).
    """
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            sys.stdout.flush()  # here, where the error can be caught, rather than when Python ends
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
        return 141


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"] and len(arguments) > 1:
        arguments = [arguments[1], "--help"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if arguments[0] == "--version":
        print(f"multimdm {multimdm.__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        near = hint(name, COMMANDS, "the commands are")
        print(f"multimdm: there is no command '{name}'; {near}", file=sys.stderr)
        return 2
    command = open_command(name)
    try:
        # A server has its own way to end.
        with nullcontext() if name == "serve" else terminable():
            command.run(rest)
    except (ValueError, OSError) as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            raise
        print(f"multimdm {name}: {inert(_in_words(error))}", file=sys.stderr)
        return 2
    except ToldInterrupt:
        return 130
    except (KeyboardInterrupt, TerminatedError) as error:
        print(f"\nmultimdm {name}: stopped{_AFTERWARDS.get(name, '')}", file=sys.stderr)
        return 143 if isinstance(error, TerminatedError) else 130
    return 0


def _in_words(error: Exception) -> str:
    """A complaint of pydantic in one line, others as they are."""
    if type(error).__module__.startswith("pydantic"):
        from pydantic import ValidationError

        from multimdm._complaints import explain

        if isinstance(error, ValidationError):
            return explain(error, error.title)
    return str(error)


def _nobody_reads() -> bool:
    """Whether the broken pipe is our output, rather than one to a worker."""
    import select

    if not hasattr(select, "poll"):  # Windows
        return True
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
