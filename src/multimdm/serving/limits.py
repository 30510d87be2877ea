"""What a server gives to one request, and to all together. Imports no torch."""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Limits:
    """Bounds that keep one client from taking everything."""

    batch: int = 32
    """Sequences that share a network call."""
    queue: int = 64
    """Requests that may wait; one more is answered 429 and told when to come back."""
    max_n: int = 16
    """Sequences that one request may ask for."""
    max_steps: int = 256
    """Network calls that a sequence may take."""
    max_length: int | None = None
    """Length of a sequence, prompt and answer; the longest that the network is made for unless given."""
    max_body: int = 262_144
    """Bytes of a request."""
    body_seconds: float | int = 20
    """Time in which a request must have arrived, and in which a client must take each piece of its answer."""
    connections: int = 512
    """Connections that may be open; one more takes the place of the one that has been idle for longest."""

    def check(self) -> None:
        """Raise a ValueError that names the option and its value."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and value <= 0:
                raise ValueError(f"--{field.name.replace('_', '-')} must be above 0; got {value}")
