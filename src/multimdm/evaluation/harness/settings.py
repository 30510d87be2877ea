"""Which tasks are run, on which items and how: for `HarnessPlan` and for the command line. Imports no lm-eval."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TaskSettings:
    """What does not depend on the model, nor on how its answers are drawn."""

    tasks: tuple[str, ...] = ("math500", "gsm8k")
    """math500, gsm8k, humaneval, mbpp; with --include also tasks of your own."""
    tps: tuple[int, ...] = (1, 2, 4, 8)
    """Tokens per step: an answer of L tokens takes L / TPS network calls."""
    data: str | None = None
    """Directory with the items as published (gsm8k/, math/, humaneval/, mbpp/); from the Hub unless given."""
    include: str | None = None
    """Directory with task files of your own."""
    limit: int | None = None
    """Only the first so many items of each task."""
    examples: int | None = None
    """Worked examples before each item, in place of the task's own number."""
    chat: bool = False
    """Put prompts into the tokenizer's chat template, for models that were tuned on conversations."""
    run_code: bool = False
    """Run programs that the models wrote (humaneval, mbpp), in a process with limits on time, memory and files."""
    seed: int = 0
    batch_size: int = 8
    """Prompts that go through the network together; changes no answer."""
