"""What a run writes down: metrics.jsonl always, TensorBoard unless it is turned off, a tracker if asked for."""

import importlib
import json
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from multimdm._files import write_text
from multimdm._inert import inert
from multimdm.evaluation.nelbo import Nelbo
from multimdm.training.settings import LogSettings

METRICS = "metrics.jsonl"
_BOUND, _EXACT = "nelbo", "negative_log_likelihood"
"""What a validation found, in its record: a bound, or of an autoregressive model the thing itself."""


class Records:
    """Numbers and texts of a run, by step. A resumed run begins where its checkpoint was made: later lines are cut."""

    def __init__(self, out: Path, name: str, log: LogSettings, step: int, recipe: dict[str, Any]) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self._trackers: list[_Tracker] = []
        for package, project in (("wandb", log.wandb), ("trackio", log.trackio)):
            if project is not None:
                self._trackers.append(_Tracker(package, project, name, out, recipe))
        self._path = out / METRICS
        _cut_after(self._path, step)
        self._file = self._path.open("a", encoding="utf-8")
        self._board: Any = None
        if log.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(out / "tensorboard"), purge_step=step + 1)

    def write(self, kind: str, step: int, **values: Any) -> None:
        """One line: what kind of record it is, after how many steps, and its values."""
        try:
            self._file.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")
            self._file.flush()
        except OSError as error:
            raise OSError(
                f"cannot write {self._path} in step {step}: {error}; checkpoints are whole, and the run can go on"
            ) from error
        for key, value in values.items():
            if self._board is not None:
                if isinstance(value, int | float):
                    self._board.add_scalar(f"{kind}/{key}", value, step)
                elif key == "texts":
                    # As code: TensorBoard reads Markdown.
                    self._board.add_text(kind, "\n\n".join(_as_code(text) for text in value), step)
        for tracker in self._trackers:
            tracker.write(kind, step, values)

    def close(self) -> None:
        """Flush everything."""
        with suppress(OSError):  # what could not be written was told before
            self._file.close()
        if self._board is not None:
            self._board.close()
        for tracker in self._trackers:
            tracker.run.finish()


def _as_code(text: str) -> str:
    return "\n".join(f"    {line}" for line in inert(text).split("\n"))


def read_records(out: Path, kind: str) -> list[dict[str, Any]]:
    """All records of a kind, in order."""
    lines = (out / METRICS).read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def loss_key(found: Nelbo) -> str:
    """Under which name it is written down."""
    return _EXACT if found.exact else _BOUND


def validation_loss(record: dict[str, Any]) -> float:
    """The loss in a record of a validation, in nats per token."""
    return record[_EXACT] if _EXACT in record else record[_BOUND]


def last_validation(out: Path) -> str | None:
    """What the last validation of a run found, in words; None if there is none that can be read."""
    try:
        record = read_records(out, "valid")[-1]
        name = "negative log-likelihood" if _EXACT in record else "NELBO"
        name = (
            "cost of one step, at most"
            if record["one_step"]
            else name
            if record["bound"]
            else "loss, which is no bound"
        )
        found = f"{name} {validation_loss(record):.4f} ± {record['standard_error']:.4f} nats/token"
        return f"validated after {record['step']:,} steps: {found}"
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _cut_after(path: Path, step: int) -> None:
    """Drop the records of later steps, and a last line that was not finished."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except (ValueError, KeyError, TypeError):
            continue  # the process was killed while it wrote this line, or the disk has damaged it
    write_text(path, "".join(kept))


class _Tracker:
    """Weights & Biases, or trackio, which has the same calls."""

    def __init__(self, package: str, project: str, name: str, out: Path, recipe: dict[str, Any]) -> None:
        try:
            self._library: Any = importlib.import_module(package)
        except ImportError:
            raise ValueError(
                f"log.{package} needs the package {package}: pip install {package}, or leave log.{package} out"
            ) from None
        start = {"wandb": self._start_wandb, "trackio": self._start_trackio}[package]
        self.run = start(project, name, out, recipe)

    def write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """Numbers as they are, and texts as a table."""
        logged = {f"{kind}/{key}": value for key, value in values.items() if isinstance(value, int | float)}
        if "texts" in values:
            logged[f"{kind}/texts"] = self._table([inert(text) for text in values["texts"]])
        self.run.log({**logged, "step": step})

    def _table(self, texts: list[str]) -> Any:
        if self._library.__name__ == "wandb":
            return self._library.Table(columns=["text"], data=[[text] for text in texts])
        return "\n\n".join(texts)

    def _start_wandb(self, project: str, name: str, out: Path, recipe: dict[str, Any]) -> Any:
        remembered = out / "wandb-id"  # a resumed run goes on under its old one
        if not remembered.exists():
            write_text(remembered, secrets.token_hex(8))
        number = remembered.read_text(encoding="utf-8").strip()
        run = self._library.init(project=project, name=name, dir=str(out), config=recipe, id=number, resume="allow")
        run.define_metric("*", step_metric="step")  # after resuming, steps are told again
        return run

    def _start_trackio(self, project: str, name: str, out: Path, recipe: dict[str, Any]) -> Any:
        return self._library.init(project=project, name=f"{name} {out.name}", config=recipe, resume="allow")
