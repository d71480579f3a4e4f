"""Files on disk as text: plain or packed, in whichever encoding."""

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ....errors import DataError

DAMAGED = (UnicodeDecodeError, EOFError, zlib.error, zipfile.BadZipFile, gzip.BadGzipFile, lzma.LZMAError)
"""What reading a damaged file raises. A damaged .bz2 raises a plain OSError."""
_PACKED = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
_BY_NAME = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_ZSTANDARD = b"\x28\xb5\x2f\xfd"
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}
_NO_BARS = (".json", ".pdf", ".md", ".html", ".xml")


class Text(NamedTuple):
    """One file's lines, by its name; and other files that were beside it in a zip, left out."""

    name: str
    lines: Any
    left_out: tuple[str, ...] = ()


def texts(path: Path) -> Iterator[Text]:
    """The texts in a file; a zip has several."""
    with open(path, "rb") as file:
        head = file.read(4)
    if path.suffix.lower() == ".parquet" or head == b"PAR1":
        yield Text(str(path), _parquet(path))
    elif path.suffix.lower() == ".zip" or head == b"PK\x03\x04":
        yield from _members(path)
    else:
        with open(path, "rb") as file:
            yield Text(str(path), _decoded(_unpacked(file, path.suffix, str(path))))


def _members(path: Path) -> Iterator[Text]:
    with zipfile.ZipFile(path) as bundle:
        names = [name for name in bundle.namelist() if not name.endswith("/") and not name.startswith("__MACOSX")]
        members = [name for name in names if Path(name).suffix.lower() not in _NO_BARS]
        if not members:
            there = ", ".join(names[:5]) or "nothing"
            raise DataError(f"{path}: expected .csv or .txt files in the zip, got {there}. Unpack and convert them.")
        left_out = tuple(name for name in names if name not in members)
        for name in members:
            with bundle.open(name) as file:
                yield Text(f"{path}:{name}", _decoded(_unpacked(file, Path(name).suffix, name)), left_out)
                left_out = ()


def _unpacked(file: Any, suffix: str, name: str) -> Any:
    """The bytes of a file that may be packed; what it is packed by is told by its beginning."""
    file = file if hasattr(file, "peek") else io.BufferedReader(file)
    head = file.peek(4)
    if head.startswith(_ZSTANDARD):
        return _zstandard(file, name)
    unpack = next((unpack for mark, unpack in _PACKED.items() if head.startswith(mark)), _BY_NAME.get(suffix.lower()))
    return unpack(file) if unpack else file


def _decoded(file: Any) -> io.TextIOWrapper:
    """Text in the encoding that its first bytes tell: UTF-8 unless they are marked, or every other one is 0."""
    file = file if hasattr(file, "peek") else io.BufferedReader(file)
    head = file.peek(4)[:4]
    encoding = next((encoding for mark, encoding in _MARKS.items() if head.startswith(mark)), "utf-8")
    if encoding == "utf-8" and len(head) == 4 and 0 in head:
        encoding = "utf-16-le" if head[1] == 0 else "utf-16-be"
    return io.TextIOWrapper(file, encoding)


def _zstandard(file: Any, name: str) -> Any:
    try:
        import zstandard  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise DataError(
            f"{name}: it is packed by Zstandard, which is read by the package zstandard. Run `pip install zstandard`, "
            f"or unpack it first: `zstd -d {Path(name).name}`."
        ) from None
    return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(file))


def _parquet(path: Path) -> io.StringIO:
    try:
        from pyarrow import csv as arrow_csv, parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise DataError(
            f"{path}: parquet is read by pyarrow, which is not installed. Run `pip install pyarrow`, or save the file "
            "as CSV."
        ) from None
    sink = io.BytesIO()
    try:
        arrow_csv.write_csv(parquet.read_table(path), sink)
    except (ValueError, OSError) as error:  # as pyarrow's own errors are
        raise DataError(f"{path}: expected a parquet file, got a damaged one ({error}). Get it anew.") from None
    return io.StringIO(sink.getvalue().decode())
