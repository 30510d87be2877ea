"""How work reports that it goes on, and where it may be stopped: between two measurements."""

from collections.abc import Callable

from multimdm._stopping import Listener
from multimdm.pipeline.ranks import agreed, current

Progress = Callable[[int], None]
"""Called with what was done since its last call: sequences times network calls, one call for judging."""


def ignore(done: int) -> None:
    """Ignore progress."""


def measuring_listener() -> Listener:
    """Hears requests to stop while results are kept one by one."""
    return Listener("the measurement at hand is finished and kept")


def leave_if_asked(listener: Listener, done: int, total: int) -> None:
    """End the program after this measurement, on all ranks alike, if that is wanted and something is left."""
    if done < total and agreed(listener.asked):
        raise listener.leaving(f"kept {done} of {total} measurements" if current().is_main else None)
