"""Cells on disk: what is written is read back, whole parts or none, and never those of something else."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from multimdm.data.cells import ROWS, CellFiles, CellsOf
from multimdm.process.quantile import Cells, buckets, numbers

N, L = 2 * ROWS + 5, 3
WHOSE = CellsOf("gpt", "weights 1", "texts 1", "id", sequences=N, length=L)


def random_cells(num: int, seed: int = 0) -> Cells:
    """Edges anywhere, and widths from all of [0, 1) down to 1e-12."""
    generator = torch.Generator().manual_seed(seed)
    low, share, power = torch.rand((3, num, L), generator=generator, dtype=torch.float64)
    return Cells(low, (1 - low) * share * 10 ** (-12 * power))


def write_all(files: CellFiles, cells: Cells, parts: list[int] | None = None) -> None:
    for part in files.missing() if parts is None else parts:
        rows = files.rows(part)
        files.write(part, Cells(cells.lower[rows.start : rows.stop], cells.width[rows.start : rows.stop]))


def content(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_is_written_is_read_back_but_for_rounding(tmp_path):
    files, cells = CellFiles.open(tmp_path / "cells", WHOSE), random_cells(N)
    assert [len(files.rows(part)) for part in range(files.parts)] == [ROWS, ROWS, 5]
    assert files.missing() == [0, 1, 2]
    write_all(files, cells)
    assert files.missing() == []
    found = CellFiles.open(tmp_path / "cells", WHOSE).read(torch.arange(N))
    assert torch.equal(found.lower, cells.lower.float().double())
    assert torch.equal(found.width, cells.width.float().double())
    assert not torch.equal(found.lower, cells.lower.half().double())
    assert float((found.lower - cells.lower).abs().max()) <= 3e-8


def test_rounding_moves_one_number_in_a_hundred_thousand(tmp_path):
    """Numbers by the same draws, within the cells as they were and as they are read, in 256 buckets."""
    files, cells = CellFiles.open(tmp_path, WHOSE), random_cells(N)
    write_all(files, cells)
    found, moved, drawn = files.read(torch.arange(N)), 0, 0
    for seed in range(100):
        one, other = (buckets(numbers(c, torch.Generator().manual_seed(seed)), 256) for c in (cells, found))
        moved, drawn = moved + int((one != other).sum()), drawn + one.numel()
        assert int((one - other).abs().max()) <= 1
    assert moved < 1e-5 * drawn


def test_rows_are_read_in_any_order_from_any_parts(tmp_path):
    files, cells = CellFiles.open(tmp_path, WHOSE), random_cells(N)
    write_all(files, cells)
    rows = torch.tensor([N - 1, 0, ROWS, 7, ROWS - 1, 2 * ROWS, 7, ROWS + 3])
    found = files.read(rows)
    assert torch.equal(found.lower, cells.lower[rows].float().double())
    assert torch.equal(found.width, cells.width[rows].float().double())
    assert not torch.equal(found.lower, cells.lower[rows.sort().values].float().double())
    assert torch.equal(files.read(rows[3:4]).lower, found.lower[3:4])


def test_the_work_is_shared_and_taken_up_again(tmp_path):
    """Two processes write parts of their own; a third finds what is left."""
    cells = random_cells(N)
    one, other = (CellFiles.open(tmp_path, WHOSE) for _ in range(2))
    write_all(one, cells, [1])
    write_all(other, cells, [2])
    assert one.missing() == other.missing() == [0]
    before = (tmp_path / "cells-00001.bin").stat().st_mtime_ns
    third = CellFiles.open(tmp_path, WHOSE)
    write_all(third, cells)
    assert third.missing() == []
    assert (tmp_path / "cells-00001.bin").stat().st_mtime_ns == before
    assert torch.equal(one.read(torch.arange(N)).lower, cells.lower.float().double())


def test_a_part_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    files, seen = CellFiles.open(tmp_path, WHOSE), []

    def pull_the_plug(partial: Path, target: Path) -> None:
        seen.append((partial.stat().st_size, Path(target).exists()))
        raise OSError("no power")

    with monkeypatch.context() as patched:
        patched.setattr("multimdm._files.os.replace", pull_the_plug)
        with pytest.raises(OSError, match="no power"):
            write_all(files, random_cells(N), [0])
    assert seen == [(ROWS * L * 2 * 4, False)]  # complete before it has its name
    assert content(tmp_path) == ["manifest.json"]
    assert files.missing() == [0, 1, 2]


@pytest.mark.parametrize("change", [lambda content: content[:-4], lambda content: content + b"\0", lambda _: b""])
def test_a_part_of_another_size_counts_as_missing(change, tmp_path):
    files, cells = CellFiles.open(tmp_path, WHOSE), random_cells(N)
    write_all(files, cells)
    part = tmp_path / "cells-00001.bin"
    part.write_bytes(change(part.read_bytes()))
    again = CellFiles.open(tmp_path, WHOSE)
    assert again.missing() == [1]
    with pytest.raises(ValueError, match=r"cells-00001\.bin is missing or cut off: have the cells computed again"):
        again.read(torch.tensor([ROWS]))
    again.read(torch.tensor([0, N - 1]))  # the others can be read
    write_all(again, cells)
    assert torch.equal(again.read(torch.arange(N)).width, cells.width.float().double())


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("teacher_fingerprint", "weights 2", r"another teacher fingerprint \('weights 1', wanted 'weights 2'\)"),
        ("data_fingerprint", "texts 2", r"another data fingerprint \('texts 1', wanted 'texts 2'\)"),
        ("order", "probable", r"another order \('id', wanted 'probable'\)"),
        ("sequences", N + 1, rf"another sequences \({N}, wanted {N + 1}\)"),
        ("length", L + 1, rf"another length \({L}, wanted {L + 1}\)"),
        ("version", 2, r"another version \(1, wanted 2\)"),
    ],
)
def test_cells_of_something_else_are_refused(field, value, message, tmp_path):
    CellFiles.open(tmp_path, WHOSE)
    other = replace(WHOSE, **{field: value})
    with pytest.raises(ValueError, match=f"{message}; remove it, to have them computed again"):
        CellFiles.open(tmp_path, other)
    assert other.folder != WHOSE.folder  # so that it does not come to this


def test_the_teacher_may_be_called_otherwise(tmp_path):
    CellFiles.open(tmp_path, WHOSE)
    renamed = replace(WHOSE, teacher="moved")
    assert renamed.folder == WHOSE.folder
    assert CellFiles.open(tmp_path, renamed).missing() == [0, 1, 2]
    assert json.loads((tmp_path / "manifest.json").read_text())["teacher"] == "gpt"  # as it was computed


def test_bad_input(tmp_path):
    files = CellFiles.open(tmp_path, WHOSE)
    with pytest.raises(ValueError, match=r"part 2 must have the cells of 5 sequences of 3; got \[4, 3, 2\]"):
        files.write(2, random_cells(4))
    with pytest.raises(ValueError, match=r"cells-00000\.bin is missing or cut off"):
        files.read(torch.tensor([0]))
    for text in ("{", "[]"):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(
            ValueError, match=r"manifest\.json is no JSON object; remove .*, to have the cells computed again"
        ):
            CellFiles.open(tmp_path, WHOSE)
