"""Where measuring may be stopped: between two measurements, at the same one on all ranks."""

from multimdm._stopping import Listener
from multimdm.pipeline.ranks import agreed, current


def measuring_listener() -> Listener:
    """Hears requests to stop while results are kept one by one."""
    return Listener("the measurement at hand is finished and kept")


def leave_if_asked(listener: Listener, done: int, total: int) -> None:
    """End the program after this measurement, if that is wanted and something is left to be measured."""
    if done < total and agreed(listener.asked):
        raise listener.leaving(f"kept {done} of {total} measurements" if current().is_main else None)
