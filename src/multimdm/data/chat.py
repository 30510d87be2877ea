"""Conversations as the prompt that a model was tuned on: the tokenizer's own template, in Jinja."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from multimdm.data.tokenizer import Tokenizer

Message = Mapping[str, str]
"""role (system, user, assistant) and content."""


def chat_ids(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """Ids of a conversation, up to where the assistant is to speak.

    Templates write special tokens out, so the text is read with them. A message that spells one is refused: it could
    end its own turn and speak for others.
    """
    _check_contents(tokenizer, messages)
    return tokenizer.encode_template(render(tokenizer, messages))


def chat_pair(tokenizer: Tokenizer, messages: Sequence[Message], answer: str) -> tuple[list[int], list[int]]:
    """Ids of a conversation up to where the assistant is to speak, and of its answer with the end of its turn."""
    whole = [*messages, {"role": "assistant", "content": answer}]
    _check_contents(tokenizer, whole)
    prompt, text = render(tokenizer, messages), render(tokenizer, whole, to_be_continued=False)
    if not text.startswith(prompt):
        raise ValueError(
            f"the chat template of tokenizer '{tokenizer.name}' writes a conversation otherwise once it is answered, "
            "so that the answer cannot be told from the prompt; use another template, or --template plain"
        )
    return tokenizer.encode_template(prompt), tokenizer.encode_template(text[len(prompt) :])


def _check_contents(tokenizer: Tokenizer, messages: Sequence[Message]) -> None:
    """No message may write what only the template may."""
    for message in messages:
        found = [token for token in tokenizer.special_tokens if token in message["content"]]
        if found:
            raise ValueError(f"a message must not contain a special token of '{tokenizer.name}'; it has {found[0]!r}")


def render(tokenizer: Tokenizer, messages: Sequence[Message], to_be_continued: bool = True) -> str:
    """The text of a conversation, up to where the assistant is to speak unless it has spoken.

    The template runs in a sandbox that cannot reach anything but the messages.
    """
    if tokenizer.chat_template is None:
        raise ValueError(f"tokenizer '{tokenizer.name}' has no chat template: use a plain prompt")
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(text: str) -> None:
        raise TemplateError(text)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    values: dict[str, Any] = {
        **tokenizer.role_tokens(),
        "messages": [dict(message) for message in messages],
        "add_generation_prompt": to_be_continued,
        "raise_exception": refuse,
        "strftime_now": lambda form: datetime.now().strftime(form),
    }
    try:
        return environment.from_string(tokenizer.chat_template).render(**values)
    except TemplateError as error:
        raise ValueError(f"the chat template of tokenizer '{tokenizer.name}' fails: {error}") from None
