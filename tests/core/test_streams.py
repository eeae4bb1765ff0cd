"""Files, pipes, standard input and standard output are opened alike."""

import gzip
import io
import os
import sys
import threading

import pytest

from ltls.core import streams
from ltls.core.streams import (
    arriving,
    display_name,
    is_pipe,
    open_input,
    open_output,
    open_text_output,
    peek_start,
    prefetch,
)


@pytest.fixture
def standard_input(monkeypatch):
    """Set the bytes of standard input."""

    def fill(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return fill


def test_names():
    assert display_name("-") == "standard input"
    assert display_name("rows.csv") == "rows.csv"


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_files_and_standard_input_are_decompressed(tmp_path, standard_input, compress):
    content = b"one\ntwo\n"
    (tmp_path / "rows").write_bytes(compress(content))
    standard_input(compress(content))
    for path in (tmp_path / "rows", "-"):
        with open_input(path) as stream:
            assert peek_start(stream) == content
            assert stream.read() == content


def test_standard_input_continues_where_reading_stopped(standard_input):
    standard_input(b"one\ntwo\nthree\n")
    with open_input("-") as stream:
        assert stream.readline() == b"one\n"
    with open_input("-") as stream:
        assert stream.read() == b"two\nthree\n"
    standard_input(b"other\n")
    with open_input("-") as stream:
        assert stream.read() == b"other\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_named_pipe_continues_where_reading_stopped(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"one\ntwo\n",))
    writer.start()
    with open_input(path) as stream:
        assert stream.readline() == b"one\n"
    with open_input(path) as stream:
        assert stream.read() == b"two\n"
    writer.join()
    assert is_pipe(path)
    streams._pipes.pop(str(path))[1].close()


def test_only_pipes_are_pipes(tmp_path):
    (tmp_path / "file").touch()
    assert is_pipe("-")
    assert not any(map(is_pipe, [tmp_path, tmp_path / "file", tmp_path / "none"]))


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "utf-8"])
def test_the_start_of_a_text_is_utf_8_whatever_its_encoding(encoding):
    text = "één\ntwo".encode(encoding)
    stream = io.BufferedReader(io.BytesIO(text))
    assert peek_start(stream, encoding) == "één\ntwo".encode()
    assert stream.read() == text


def test_a_file_is_replaced_only_if_all_is_written(tmp_path):
    path = tmp_path / "rows.gz"
    with open_output(path) as stream:
        stream.write(b"first")

    def fail():
        with open_output(path) as stream:
            stream.write(b"second")
            raise ValueError("half")

    with pytest.raises(ValueError, match="half"):
        fail()
    assert gzip.decompress(path.read_bytes()) == b"first"
    assert os.listdir(tmp_path) == ["rows.gz"]


def test_text_is_utf_8_with_line_ends_as_given(tmp_path):
    path = tmp_path / "rows"
    with open_text_output(path) as stream:
        stream.write("één\r\ntwo\n")
    assert path.read_bytes() == "één\r\ntwo\n".encode()


@pytest.mark.parametrize("path", [None, "-"])
def test_standard_output(capfdbinary, path):
    print("before", end=" ")
    with open_output(path) as stream:
        stream.write(b"bytes ")
        stream.flush()
    with open_text_output(path) as text:
        text.write("text")
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == b"before bytes text"


# Reading ahead: in another thread, one item or those that arrive; nothing else changes


@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_all_items_come_in_order(n):
    assert list(prefetch(iter(range(n)))) == list(range(n))


def test_the_next_item_is_prepared_in_another_thread_while_one_is_used():
    prepared, threads = [threading.Event() for _ in range(3)], []

    def items():
        for number, event in enumerate(prepared):
            threads.append(threading.current_thread())
            event.set()
            yield number

    for number in prefetch(items()):
        if number + 1 < len(prepared):
            assert prepared[number + 1].wait(timeout=60)
    assert threading.current_thread() not in threads


def test_no_more_than_one_item_is_prepared():
    begun = []

    def items():
        for number in range(10):
            begun.append(number)
            yield number

    fetched = prefetch(items())
    next(fetched)
    fetched.close()  # waits for the thread
    assert begun in ([0], [0, 1])


def test_an_error_comes_after_the_items_before_it():
    def items():
        yield 1
        raise ValueError("no more")

    fetched = prefetch(items())
    assert next(fetched) == 1
    with pytest.raises(ValueError, match="no more"):
        next(fetched)


def test_the_thread_ends_with_the_loop():
    before = threading.active_count()
    for item in prefetch(iter(range(100))):
        if item == 3:
            break
    assert threading.active_count() == before


@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("n", [0, 1, 50])
def test_all_items_arrive_in_order(n, limit):
    parts = list(arriving(iter(range(n)), limit))
    assert [item for part in parts for item in part] == list(range(n))
    assert all(1 <= len(part) <= limit for part in parts)


def test_items_that_have_arrived_do_not_wait_for_others():
    more = threading.Event()

    def items():
        yield from (1, 2)
        assert more.wait(timeout=60)
        yield 3
        raise ValueError("no more")

    arrived, found = arriving(items(), 100), []
    while len(found) < 2:
        found += next(arrived)
    more.set()
    assert (found, next(arrived)) == ([1, 2], [3])
    with pytest.raises(ValueError, match="no more"):
        next(arrived)
