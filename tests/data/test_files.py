import gzip
import lzma
import re

import pytest
import zstandard

from multimdm.data.files import LocalFile, find_files, read_blocks

TEXT = "".join(f"line {i} — naïve\n" for i in range(20_000)).encode()
PACK = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}


def read(path) -> bytes:
    return b"".join(read_blocks(LocalFile.of(path), lambda _: None))


@pytest.mark.parametrize("suffix", PACK)
def test_compressed_files_are_read_and_every_byte_is_reported(suffix, tmp_path):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACK[suffix](TEXT))
    used = []
    assert b"".join(read_blocks(LocalFile.of(path), used.append)) == TEXT
    assert sum(used) == path.stat().st_size


@pytest.mark.parametrize("suffix", PACK)
def test_parts_one_after_the_other_in_one_file(suffix, tmp_path):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACK[suffix](TEXT) + PACK[suffix](b"more\n"))
    assert read(path) == TEXT + b"more\n"


@pytest.mark.parametrize("suffix", PACK)
def test_a_file_that_is_cut_short_is_an_error(suffix, tmp_path):
    path = tmp_path / f"a.txt{suffix}"
    packed = PACK[suffix](TEXT)
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(ValueError, match=r"a\.txt.*damaged or cut short"):
        read(path)


@pytest.mark.parametrize("suffix", PACK)
def test_damaged_data_are_an_error(suffix, tmp_path):
    path = tmp_path / f"a.txt{suffix}"
    packed = bytearray(PACK[suffix](TEXT))
    packed[len(packed) // 2 :] = bytes(len(packed) - len(packed) // 2)
    path.write_bytes(packed)
    with pytest.raises(ValueError, match="damaged or cut short"):
        read(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt.gz", TEXT, "is not gzip, though its name ends in .gz"),
        ("a.txt.xz", gzip.compress(TEXT), "it is gzip: give it a name that ends in .gz"),
        ("a.jsonl.zst", TEXT, "is not zstandard"),
        ("a.parquet", TEXT, "is not Parquet, though its name ends in .parquet"),
        ("a.txt", gzip.compress(TEXT), "is a gzip file, though its name does not say so"),
        ("a.jsonl", b"PAR1....", "is a Parquet file"),
        ("a.txt", b"PK\x03\x04....", "unpack it first"),
        ("a.parquet.gz", gzip.compress(TEXT), "Parquet compresses its columns itself"),
        ("a.txt", b"", "a.txt is empty"),
    ],
)
def test_a_file_that_is_not_what_its_name_says(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        find_files(str(tmp_path / name))
    assert name in str(error.value)


def test_finding(tmp_path):
    for name in ("b.txt", "a.jsonl", "sub/c.parquet", ".hidden", "sub/.git/d.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"PAR1" if path.suffix == ".parquet" else b"x")
    found = find_files(str(tmp_path))
    assert [(file.path.name, file.format) for file in found] == [
        ("a.jsonl", "json"),
        ("b.txt", "text"),
        ("c.parquet", "parquet"),
    ]
    assert [file.path.name for file in find_files(f"{tmp_path}/*.txt")] == ["b.txt"]
    assert [file.path.name for file in find_files(f"{tmp_path}/**/*.parquet")] == ["c.parquet"]


def test_nothing_found(tmp_path):
    with pytest.raises(ValueError, match=r"source '.*none\.txt': there is no such file or folder.*hf:NAME"):
        find_files(str(tmp_path / "none.txt"))
    with pytest.raises(ValueError, match="no file matches the pattern"):
        find_files(f"{tmp_path}/*.txt")
    with pytest.raises(ValueError, match="the folder holds no files"):
        find_files(str(tmp_path))
