"""`multimdm serve`: an OpenAI-compatible server and the playground."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from multimdm._inert import inert
from multimdm.builtin import SERVED
from multimdm.cli.device import Device, PrecisionOption, check_device
from multimdm.cli.parsing import parse
from multimdm.serving.limits import Limits

_KEY = "MULTIMDM_API_KEY"


@dataclass(frozen=True)
class Options:
    """Serve models over HTTP: OpenAI's /v1/completions and /v1/chat/completions, and a playground at /.

    Only this machine can reach it unless --host says otherwise. Whoever may reach it from elsewhere should need a key:
    --api-key-file, or the environment variable MULTIMDM_API_KEY.
    """

    checkpoints: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[CKPT ...]")] = SERVED
    """Directories of checkpoints, their names on the Hub, or names of models that come with the package (`multimdm
    models`); the first answers requests that name no model. Without any, the built-in models of short stories."""
    host: str = "127.0.0.1"
    """Address to listen at; 0.0.0.0 is all of this machine."""
    port: int = 8000
    """Port to listen at."""
    limits: Limits = field(default_factory=Limits)
    api_key_file: Path | None = None
    """File that holds the key which requests must send."""
    allow_origin: tuple[str, ...] = ()
    """Sites whose pages may use the server (CORS), as in http://localhost:3000; none unless given."""
    bos: bool = False
    """Put the tokenizer's BOS before every prompt, as packed training data have it."""
    grace: int = 30
    """Seconds that running requests have to finish when the server is stopped."""
    device: Device = "auto"
    precision: PrecisionOption = "auto"
    quiet: bool = False
    """Do not log every request."""

    def check(self) -> None:
        """Say what is wrong before a checkpoint is read."""
        self.limits.check()
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"--port must be from 0 to 65535 (0 takes a free one); got {self.port}")
        if self.grace < 0:
            raise ValueError(f"--grace must be at least 0; got {self.grace}")

    @property
    def api_key(self) -> str | None:
        """The key, from a file or the environment: anyone on the machine can read the arguments of a program."""
        if self.api_key_file is None:
            return os.environ.get(_KEY) or None
        key = self.api_key_file.read_text(encoding="utf-8").strip()
        if not key:
            raise ValueError(f"--api-key-file {self.api_key_file} is empty")
        return key


def main(arguments: Sequence[str]) -> None:
    """Parse the options and serve until stopped."""
    settings = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)
    options = parse(Options, arguments, "multimdm serve", config=settings)
    options.check()
    key = options.api_key
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ValueError(f"serving needs {error.name}: install it with pip install 'multimdm[serve]'") from None
    check_device(options.device)
    from multimdm.serving.app import create_app
    from multimdm.serving.catalog import open_checkpoints
    from multimdm.serving.server import Address, bind, make_server

    with bind(Address(options.host, options.port)) as bound:
        address = Address(options.host, bound.getsockname()[1])
        served_models = open_checkpoints(options.checkpoints, options.device, options.bos, options.precision)
        app = create_app(served_models, options.limits, key, address.hosts, options.allow_origin)
        print(inert(f"serving {', '.join(served_models)}; the playground is at {address.url}"), flush=True)
        if not address.loopback and key is None:
            warning = f"anyone who reaches {options.host} may use this server; set {_KEY} to ask for a key"
            print(f"warning: {warning}", flush=True)
        make_server(app, options.grace, options.quiet).run(sockets=[bound])
