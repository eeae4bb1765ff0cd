"""Compressed files are detected by their first bytes, and written by their suffix."""

import bz2
import gzip
import importlib.util
import io
import lzma
import sys
from functools import partial

import pytest

from ltls.core.streams import (
    CorruptFileError,
    FileTooLargeError,
    SizeLimits,
    decompressed,
    is_compressed,
    open_compressed,
    open_input,
    without_compression_suffix,
)

COMPRESS = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
TEXT = b"".join(b"%d lines of text\n" % i for i in range(2000))

if sys.version_info >= (3, 14) or importlib.util.find_spec("backports.zstd"):
    zstd = importlib.import_module(
        "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    )
    checked = {zstd.CompressionParameter.checksum_flag: 1}
    COMPRESS[".zst"] = partial(zstd.compress, options=checked)

with_each_compression = pytest.mark.parametrize("suffix", COMPRESS)


@with_each_compression
def test_content_is_compressed_by_suffix_and_detected_without_it(tmp_path, suffix):
    path = tmp_path / "no_suffix"
    with open_compressed(path, f"rows.csv{suffix}") as stream:
        stream.write(TEXT)
    assert path.stat().st_size < len(TEXT) / 2
    assert is_compressed(path)
    with open_input(path) as stream:
        assert stream.read() == TEXT


@pytest.mark.parametrize("content", [TEXT, b"", b"x", b"\x1f"])
def test_plain_content_is_read_as_it_is(tmp_path, content):
    path = tmp_path / "plain.gz.txt"
    with open_compressed(path, path.name) as stream:
        stream.write(content)
    assert not is_compressed(path)
    with open_input(path) as stream:
        assert stream.read() == content


def test_a_plain_stream_is_returned_itself():
    stream = io.BufferedReader(io.BytesIO(TEXT))
    assert decompressed(stream, "stream", SizeLimits()) is stream


@with_each_compression
def test_truncated_and_corrupt_files_are_named(tmp_path, suffix):
    whole = COMPRESS[suffix](TEXT)
    corrupt = bytearray(whole)
    corrupt[len(whole) // 2] ^= 0xFF
    path = tmp_path / "broken"
    for content in (whole[:-1], whole[: len(whole) // 2], whole[:12], bytes(corrupt)):
        path.write_bytes(content)
        with pytest.raises(CorruptFileError) as error, open_input(path) as stream:
            stream.read()
        assert error.value.path == str(path)
        message = f"{path}: the compressed file is truncated or corrupt: {error.value.reason}"
        assert str(error.value) == message


def test_errors_of_the_system_and_of_the_reader_are_not_corruption(tmp_path):
    with pytest.raises(FileNotFoundError), open_input(tmp_path / "none"):
        pass
    path = tmp_path / "rows"
    path.write_bytes(gzip.compress(TEXT))
    with pytest.raises(KeyError), open_input(path):
        raise KeyError


def test_suffixes():
    for name in ("rows", "rows.csv", "rows.gz.csv", "gz"):
        assert without_compression_suffix(name) == name
        for suffix in (*COMPRESS, ".zst"):
            assert without_compression_suffix(f"{name}{suffix}") == name


def test_zstd_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    home = "compression" if sys.version_info >= (3, 14) else "backports"
    monkeypatch.setitem(sys.modules, f"{home}.zstd", None)
    with pytest.raises(ValueError, match=r"zstd files need .*pip install 'ltls\[zstd\]'"):
        open_compressed(tmp_path / "rows", "rows.zst")


@pytest.fixture(scope="module")
def zeros():
    return bytes((1 << 26) + (1 << 20))


@with_each_compression
def test_a_file_that_grows_too_much_is_an_error(tmp_path, zeros, suffix):
    path = tmp_path / "bomb"
    path.write_bytes(COMPRESS[suffix](zeros))
    n_read = 0
    with (  # noqa: PT012
        pytest.raises(FileTooLargeError, match="250 times") as error,
        open_input(path) as stream,
    ):
        while part := stream.read(1 << 16):
            n_read += len(part)
    assert error.value.path == str(path)
    assert (1 << 26) - (1 << 16) <= n_read <= (1 << 26)
    with open_input(path, SizeLimits(max_ratio=1e6)) as stream:
        assert len(stream.read()) == len(zeros)


@with_each_compression
def test_a_limit_of_bytes(tmp_path, suffix):
    path = tmp_path / "rows"
    path.write_bytes(COMPRESS[suffix](TEXT))
    with open_input(path, SizeLimits(max_bytes=len(TEXT))) as stream:
        assert stream.read() == TEXT
    with (
        pytest.raises(
            FileTooLargeError, match=r"more than max_bytes=36,889 bytes.*store it uncomp"
        ),
        open_input(path, SizeLimits(max_bytes=len(TEXT) - 1)) as stream,
    ):
        stream.read()


@pytest.mark.parametrize(
    "limits", [{"max_ratio": 0}, {"max_ratio": float("nan")}, {"max_bytes": -1}]
)
def test_limits_are_checked(limits):
    with pytest.raises(ValueError, match=f"{next(iter(limits))} must be"):
        SizeLimits(**limits)


def test_little_more_than_the_limit_is_decompressed(tmp_path):
    path, most = tmp_path / "zeros.gz", 1 << 21
    path.write_bytes(gzip.compress(bytes(1 << 25)))
    with open_input(path, SizeLimits(max_bytes=most)) as stream:
        buffer = bytearray(b"x" * (1 << 25))
        with pytest.raises(FileTooLargeError):
            stream.readinto(buffer)
    assert buffer.index(b"x") <= most + (1 << 20)
