"""Whether the Hugging Face Hub answers: asked once and briefly, before its client would try again and again."""

import threading
from typing import Literal

from multimdm._inert import reason

PATIENCE = 3.0
"""Seconds for a first answer: with what is imported before it, a command fails within five. The client itself would
wait for ever, and a look-up of its address for long."""


def hub_silence(name: str, token: str | bool | None = None, kind: Literal["model", "dataset"] = "model") -> str | None:
    """Why the Hub does not answer; None if it does, whatever it says of this name."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    reasons: list[str | None] = []

    def ask() -> None:
        api = HfApi(token=token)
        try:
            (api.model_info if kind == "model" else api.dataset_info)(name, timeout=PATIENCE)
        except (HfHubHTTPError, ValueError):  # it said no, or the client does not even ask for such a name
            reasons.append(None)
        except Exception as error:
            reasons.append(f"the Hub cannot be reached: {reason(error)}")
        else:
            reasons.append(None)

    thread = threading.Thread(target=ask, daemon=True)  # the look-up of an address knows no time limit
    thread.start()
    thread.join(PATIENCE)
    return reasons[0] if reasons else f"the Hub does not answer within {PATIENCE:g} seconds"
