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
    for message in messages:
        found = [token for token in tokenizer.special_tokens if token in message["content"]]
        if found:
            raise ValueError(f"a message must not contain a special token of '{tokenizer.name}'; it has {found[0]!r}")
    return tokenizer.encode_template(render(tokenizer, messages))


def render(tokenizer: Tokenizer, messages: Sequence[Message]) -> str:
    """The text of a conversation; the template runs in a sandbox that cannot reach anything but the messages."""
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
        "add_generation_prompt": True,
        "raise_exception": refuse,
        "strftime_now": lambda form: datetime.now().strftime(form),
    }
    try:
        return environment.from_string(tokenizer.chat_template).render(**values)
    except TemplateError as error:
        raise ValueError(f"the chat template of tokenizer '{tokenizer.name}' fails: {error}") from None
