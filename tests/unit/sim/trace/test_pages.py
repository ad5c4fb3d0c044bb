"""Pages that claim too much are refused before they are unpacked; honest ones are left alone."""

from __future__ import annotations

import io
import resource
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specfit.core.errors import TraceFormatError
from specfit.sim.trace import pages
from specfit.sim.trace.pages import check_pages


def chunks(path: Path) -> list[tuple[int, int]]:
    """Return start and size of every column chunk."""
    found = []
    metadata = pq.read_metadata(path)
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            offsets = (column.dictionary_page_offset, column.data_page_offset)
            start = min(offset for offset in offsets if offset is not None)
            found.append((start, column.total_compressed_size))
    return found


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("use_dictionary", [True, False])
@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_honest_pages_pass(tmp_path: Path, version: str, use_dictionary: bool, codec: str) -> None:
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "numbers": rng.integers(9, size=50_000),
            "lists": [rng.random(i % 7).tolist() for i in range(50_000)],
            "texts": [f"text {i % 100}" for i in range(50_000)],
        }
    )
    path = tmp_path / "t.parquet"
    pq.write_table(
        table,
        path,
        compression=codec,
        use_dictionary=use_dictionary,
        data_page_version=version,
        data_page_size=2**14,
        row_group_size=20_000,
        write_page_checksum=True,
    )
    with path.open("rb") as file:
        for start, size in chunks(path):
            check_pages(file, start, size)


def bomb(path: Path, num_bytes: int) -> None:
    """Write a few kilobytes that unpack to `num_bytes`."""
    zeros = pa.array([bytes(2**20)] * (num_bytes // 2**20), pa.binary())
    pq.write_table(
        pa.table({"zeros": zeros}), path, compression="zstd", use_dictionary=False,
        write_statistics=False, data_page_size=2**22,
    )  # fmt: skip


def test_a_small_file_that_unpacks_to_much_is_refused_without_unpacking(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    bomb(path, 2**28)
    assert path.stat().st_size < 2**17
    ((start, size),) = chunks(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with path.open("rb") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "MAX_UNPACKED_BYTES", 2**24)
        with pytest.raises(TraceFormatError, match=r"claim \d+ bytes"):
            check_pages(file, start, size)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**12


def test_too_many_values_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "nulls.parquet"
    table = pa.table({"nulls": pa.nulls(200_000, pa.int32())})
    pq.write_table(table, path, use_dictionary=False)
    ((start, size),) = chunks(path)
    with path.open("rb") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "MAX_VALUES", 100_000)
        with pytest.raises(TraceFormatError, match=r"and 1\d0000 values"):
            check_pages(file, start, size)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"", "ends at byte|end at byte|goes beyond"),
        (b"\x15", "goes beyond its column"),
        (b"\x15\x00\x00", "claims a size of None"),
        (b"\x25\x01\x15\x00\x00", "claims a size of -1"),
        (b"\x15" + b"\xff" * 12, "number of too many bytes"),
        (b"\x1d\x00", "unknown kind 13"),
        (b"\x1c" * 40, "nested too deeply"),
        (b"\x18\xff\xff\xff\xff\x7f", "goes beyond its column"),
        (b"\x19\xf5\xff\xff\xff\xff\x7f", "goes beyond its column"),
        (b"\x25\x02\x15\x80\x01\x00", "end at byte"),
    ],
)
def test_a_broken_header_is_refused(header: bytes, message: str) -> None:
    with pytest.raises(TraceFormatError, match=message):
        check_pages(io.BytesIO(header), 0, max(len(header), 1))


def test_too_many_pages_are_refused() -> None:
    page = b"\x15\x00\x15\x00\x15\x00\x00"  # type, unpacked and packed size: all 0
    data = page * (pages.MAX_PAGES + 1)
    check_pages(io.BytesIO(data), 0, len(data) - len(page))
    with pytest.raises(TraceFormatError, match=r"65537 pages"):
        check_pages(io.BytesIO(data), 0, len(data))


def test_random_bytes_never_hang_or_crash() -> None:
    rng = np.random.default_rng(2)
    for _ in range(3000):
        data = rng.bytes(int(rng.integers(1, 80)))
        try:
            check_pages(io.BytesIO(data), 0, len(data))
        except TraceFormatError:
            continue
