"""Requests that ask for too much, and clients that do not read: they cost little, and end."""

import json
import os
import re
import socket
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import eye_array
from serving import CHUNKED, SIZED, eventually, in_process

from ltls import LTLSClassifier, TextClassifier
from ltls.settings import Text

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
SIZE = 8 << 20
MB = 1 << 20


@contextmanager
def little_memory(server, name, most):
    """Check that the process takes no more megabytes than that for a while."""
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")  # the peak is that of now
    usual = server.memory("VmHWM")
    yield
    assert server.memory("VmHWM") - usual < most * MB, name


def processor_seconds(server):
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def full(head, item, tail):
    """Return a body of the largest size that repeats an item."""
    n = (SIZE - len(head) - len(tail)) // (len(item) + 1)
    return head + b",".join([item] * n) + tail


TENSOR = b'{"inputs": [{"name": "indices", "datatype": "INT64", "shape": [1], "data": '
BAD = {
    "numbers for rows": ("/predict", full(b'{"model": "codes", "rows": [', b"1", b"]}")),
    "numbers for texts": ("/predict", full(b'{"model": "tickets", "text": [', b"1", b"]}")),
    "a number at the end": ("/predict", full(b'{"text": [', b'"a"', b", 1]}")),
    "empty rows": ("/predict", full(b'{"model": "codes", "rows": [', b"[]", b"]}")),
    "rows of a number": ("/predict", full(b'{"model": "codes", "rows": [', b"[1]", b"]}")),
    "small objects": ("/predict", full(b'{"model": "codes", "rows": [', b'{"a":[]}', b"]}")),
    "rows by another name": ("/predict", full(b'{"rows": [], "\\u0072ows": [', b"{}", b"]}")),
    "quotes in names": (
        "/predict",
        full(b'{"model": "codes", "rows": [{"}]\\"\\\\": 1}, ', b"[]", b"]}"),
    ),
    "an object of lists": (
        "/predict",
        b'{"model": "codes", "rows": [{%s}]}' % b",".join(b'"%x":[]' % n for n in range(700_000)),
    ),
    "no JSON": ("/predict", b"[" * (SIZE - 1)),
    "a long number": ("/predict", b'{"rows": [[' + b"9" * (SIZE - 20) + b"]]}"),
    "tensors of lists": ("/v2/models/codes/infer", full(TENSOR + b"[", b"[]", b"]}]}")),
    "tensors": ("/v2/models/codes/infer", full(b'{"inputs": [', b'{"name": "a"}', b"]}")),
    "parameters": ("/v2/models/codes/infer", full(b'{"parameters": [', b"{}", b"]}")),
}
LARGE = {
    "a text": b'{"model": "tickets", "text": "%s"}' % (b"my card " * (SIZE // 8 - 10)),
    "a text of short words": b'{"model": "tickets", "text": "%s"}' % (b"a " * (SIZE // 2 - 20)),
    "a text of one word": b'{"model": "tickets", "text": "%s"}' % (b"a" * (SIZE - 40)),
    "four bytes a letter": b'{"model": "tickets", "text": "%s\xf0\x9f\x98\x80"}'
    % (b"my card " * (SIZE // 8 - 10)),
    "texts": full(b'{"model": "tickets", "text": ["%s", ' % (b"a b " * (1 << 20)), b'"a"', b"]}"),
    "one long text": b'{"model": "tickets", "text": ["%s"%s]}'
    % (b"a b " * (1 << 20), b',"a"' * 1000),
    "a row": full(b'{"model": "codes", "rows": [{"values": [1], "indices": [', b"3", b"]}]}"),
    "numbers": full(b'{"model": "codes", "rows": [[', b"0.5", b"]]}"),
    "ones": full(b'{"model": "codes", "rows": [[', b"1", b"]]}"),
}
MOST = (16 * SIZE >> 20) + 64  # megabytes, as the documentation says


@linux
def test_bodies_of_the_largest_size_take_little_time_and_memory(models):
    with in_process(models["tickets"], models["codes"], "--no-access-log") as server:
        usual = server.memory()
        for name, (path, body) in BAD.items():
            before = processor_seconds(server)
            with little_memory(server, name, MOST):
                answer = server.ask("POST", path, body)
            assert 400 <= answer.status < 500, name
            assert len(answer.body) < 500, name
            assert processor_seconds(server) - before < 0.9, name
        for name, body in LARGE.items():
            with little_memory(server, name, MOST):
                assert server.ask("POST", "/predict", body).status in (200, 413, 422), name
        assert server.predict(model="tickets", text="a").status == 200
        assert eventually(lambda: server.memory() - usual < MOST * MB)  # most is given back


def tensors(name, n_binary=0, fill=b"\1", **data):
    """Return a request with tensors: data types, shapes, and JSON or a number of equal bytes."""
    inputs = []
    for each, (datatype, shape, values) in data.items():
        head = b'{"name":"%s","datatype":"%s","shape":%s,' % (
            each.encode(),
            datatype.encode(),
            json.dumps(shape).encode(),
        )
        own = b'"data":' + values if isinstance(values, bytes) else b""
        inputs.append(head + (own or b'"parameters":{"binary_data_size":%d}' % values) + b"}")
        n_binary += values if isinstance(values, int) else 0
    head = b'{"inputs":[%s]}' % b",".join(inputs)
    path = f"/v2/models/{name}/infer"
    return path, head + n_binary * fill, {"Inference_Header_Content_Length": str(len(head))}


WIDE = 8000  # features
LISTS = b"[" + b",".join([b"[]"] * (SIZE // 3 - 100)) + b"]"
FORM = "/v1/projects/tickets/suggest"
TENSORS = {
    "dense rows": (200, tensors("wide", features=("INT8", [1000, WIDE], 1000 * WIDE))),
    "another length": (422, tensors("wide", features=("INT8", [1, SIZE - 500], SIZE - 500))),
    "equal places": (
        200,
        tensors(
            "wide",
            indices=("INT8", [4_000_000], 4_000_000),
            values=("INT8", [4_000_000], 4_000_000),
        ),
    ),
    "lists": (400, tensors("wide", features=("INT8", [1, WIDE], LISTS))),
    "a nested text": (
        400,
        tensors("tickets", text=("BYTES", [1, 2], b'[["%s"]]' % (b"a" * (SIZE - 200)))),
    ),
    "lists for texts": (400, tensors("tickets", text=("BYTES", [1, 1], LISTS))),
    "empty texts": (413, tensors("tickets", text=("BYTES", [SIZE // 4 - 99], SIZE - 4 * 99))),
    **{
        f"a vector of {datatype} for two numbers": (
            422,
            tensors(
                "parcels",
                fill=b"\x80",
                item=("BYTES", [1], b'["tea"]'),
                vector=(datatype, [1, SIZE // n_bytes - 500], SIZE - 500 * n_bytes),
            ),
        )
        for datatype, n_bytes in (("INT8", 1), ("INT16", 2), ("FP16", 2), ("FP32", 4))
    },
    **{
        f"dense rows of negative {datatype}": (
            200,
            tensors("wide", fill=b"\x80", features=(datatype, [rows, WIDE], n_bytes * rows * WIDE)),
        )
        for datatype, n_bytes, rows in (("INT8", 1, 1000), ("INT16", 2, 500), ("FP16", 2, 500))
    },
    "a form": (200, (FORM, b"text=" + b"%61" * (SIZE // 3 - 2), {})),
    "a form of signs": (200, (FORM, b"text=" + b"%" * (SIZE - 5), {})),
}


@linux
def test_tensors_and_forms_of_the_largest_size_take_little_memory(models, tmp_path):
    wide = LTLSClassifier(random_state=0).fit(eye_array(20, WIDE, format="csr"), range(20))
    wide.save(tmp_path / "wide.ltls")
    paths = tmp_path / "wide.ltls", models["tickets"], models["parcels"]
    with in_process(*paths, "--no-access-log") as server:
        for name, (status, (path, body, headers)) in TENSORS.items():
            with little_memory(server, name, (16 * len(body) >> 20) + 64):
                assert server.ask("POST", path, body, **headers).status == status, name


@linux
@pytest.mark.parametrize("features", [{"n_features": 64}, {"tokenizer": r"\S+"}], ids=str)
def test_a_text_that_is_counted_in_python_takes_little_memory(tmp_path, features):
    model = TextClassifier(features=Text(**features), random_state=0)
    model.fit(["my card", "a fee"] * 9, ["card", "fee"] * 9).save(tmp_path / "words.ltls")
    n_bytes = SIZE // 8
    most = (16 * n_bytes >> 20) + 32
    with (
        in_process(tmp_path / "words.ltls", "--no-access-log") as server,
        little_memory(server, features, most),
    ):
        assert server.predict(text="my card " * (n_bytes // 8)).status == 200


def test_large_bodies_are_decoded_in_a_thread_within_the_time_limit(serving, monkeypatch):
    from ltls.serve import plain

    free, threads = threading.Event(), []

    def decoded(decoder, content):
        threads.append(threading.current_thread().name)
        free.wait(20)
        return real(decoder, content)

    real = plain.decoded
    monkeypatch.setattr(plain, "decoded", decoded)
    with serving(timeout=0.5) as server:
        answers = []
        body = {"text": ["a" * 10_000]}
        asking = threading.Thread(target=lambda: answers.append(server.predict(**body)))
        asking.start()
        assert eventually(lambda: threads)
        assert server.ask("GET", "/v2/health/live").status == 200
        asking.join()
        assert answers[0].status == 504
        free.set()
        assert server.predict(**body).status == 200
    assert all(name.startswith("ltls-serve") for name in threads)


@pytest.fixture
def one_thread(serving, monkeypatch):
    """Start a server with one thread and without a limit; return it and the pieces it begins."""
    from ltls.serve import plain, work
    from ltls.serve.models import ServedModel

    pieces, real = [], ServedModel.best

    def best(self, items, *others):
        pieces.append(len(items))
        time.sleep(0.02)
        return real(self, items, *others)

    monkeypatch.setattr(work, "_MAX_THREADS", 1)
    monkeypatch.setattr(plain, "_MAX_EXPLAINED", 1 << 40)
    monkeypatch.setattr(ServedModel, "best", best)

    @contextmanager
    def start(timeout):
        with serving(max_labels=1 << 40, timeout=timeout) as server:
            pieces.clear()
            yield server, pieces

    return start


HUGE = {"text": ["my card"] * 1024, "k": 1000}
N_PIECES = 256  # of four rows each


@pytest.mark.parametrize("explain", [True, False])
def test_too_much_work_is_refused_before_it_begins(serving, explain):
    with serving() as server:
        answer = server.predict(**HUGE, explain=explain)
    assert answer.status == 413
    assert f"at most {2048 if explain else 131072} " in answer.json["error"]


@pytest.mark.parametrize("explain", [True, False])
def test_work_ends_with_its_time(one_thread, explain):
    with one_thread(timeout=0.5) as (server, pieces):
        answer = server.predict(**HUGE, explain=explain)
        assert answer.status == 504
        assert "longer than 0.5 s" in answer.json["error"]
        assert server.predict(text="a", proba=True).status == 200  # the thread is free
        assert 2 <= len(pieces) < N_PIECES


def test_work_ends_when_its_client_has_left(one_thread):
    body = json.dumps(HUGE).encode()
    with one_thread(timeout=60) as (server, pieces):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(SIZED % len(body) + body)
            assert eventually(lambda: len(pieces) > 2)
        assert server.predict(text="a", proba=True).status == 200
        assert len(pieces) < N_PIECES


def test_an_answer_may_not_be_too_large(serving, monkeypatch):
    from ltls.serve import work

    monkeypatch.setattr(work, "_MAX_ANSWER", 100_000)
    with serving("words") as server:
        assert server.predict(text=["w1 v1"] * 500, k=100).status == 413
        answer = server.predict(text=["w1 v1"] * 20, k=100, explain=True)
        assert answer.status == 413
        assert "smaller k" in answer.json["error"] or "fewer or shorter" in answer.json["error"]
        assert server.predict(text="w1 v1", explain=True).status == 200


def flood(server, content):
    """Send without end; return when the server has closed the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        try:
            for _ in range(500):
                connection.sendall(content)
            while connection.recv(1 << 16):
                pass
        except ConnectionError:
            return


@linux
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_client_that_sends_without_end_is_left(models, method):
    one = b"GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
    if method == "POST":
        one = SIZED % 12 + b'{"text":"a"}'
    with in_process(models["tickets"], "--no-access-log") as server:
        usual = server.memory()
        flood(server, 1000 * one)
        assert server.memory("VmHWM") - usual < 30 * MB
        assert server.predict(text="a").status == 200
        counted = server.ask("GET", "/metrics").body.decode()
        n_flooded = float(
            re.search(r'_total{route="/(?:v2/health/live|predict)".* (\S+)', counted)[1]
        )
        assert n_flooded < 100


@linux
def test_clients_that_do_not_read_are_left(models):
    body = json.dumps({"text": ["w1 v1"] * 1000, "k": 100}).encode()
    options = ("--timeout", "1", "--max-concurrency", "8", "--no-access-log")
    with in_process(models["words"], *options) as server:
        usual, clients = server.memory(), []
        for _ in range(40):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", server.port))
            client.sendall(SIZED % len(body) + body)
            clients.append(client)
        # Those that are answered take all places, until the time to send is over.
        assert eventually(lambda: server.predict(text="w1").status == 200)
        assert eventually(lambda: server.n_files() < 30)
        assert server.memory("VmHWM") - usual < 150 * MB
        for client in clients:
            client.close()


@pytest.mark.parametrize(
    ("n_bytes", "n_chunks", "status"), [(1, 999, 200), (1, 50_000, 400), (80, 5000, 200)]
)
def test_tiny_chunks_are_handled_only_if_they_are_few(
    serving, monkeypatch, n_bytes, n_chunks, status
):
    from ltls.serve import connection

    events, real = [], connection._Events.next_event

    def next_event(self):
        events.append(self)
        return real(self)

    monkeypatch.setattr(connection._Events, "next_event", next_event)
    chunk = b"%x\r\n%s\r\n" % (n_bytes, b" " * n_bytes)
    body = b'e\r\n{"text": "my"}\r\n0\r\n\r\n'
    with serving() as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        with suppress(ConnectionError):
            client.sendall(CHUNKED + n_chunks * chunk + body)
        assert client.recv(12) == b"HTTP/1.1 %d" % status
    assert len(events) < 3 * min(n_chunks, 1000 if status == 400 else n_chunks) + 50


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
KEYS = ["model", "text", "rows", "k", "proba", "explain", "trellis"]
TENSOR_KEYS = ["name", "shape", "datatype", "data", "parameters"]


@settings(max_examples=150)
@given(
    name=st.sampled_from(["tickets", "codes", "boxes", "orders", "words"]),
    body=st.dictionaries(st.sampled_from(KEYS), json_values),
    rows=st.lists(st.dictionaries(st.sampled_from(["indices", "values", "item"]), json_values)),
    tensor=st.dictionaries(st.sampled_from(TENSOR_KEYS), json_values),
)
def test_no_request_is_an_error_of_ours(server, name, body, rows, tensor):
    tensors = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", **tensor}]}
    requests = [
        ("/predict", {**body, "model": name}),
        ("/predict", {"model": name, "rows": rows, "proba": True}),
        (f"/v2/models/{name}/infer", tensors),
    ]
    for path, request in requests:
        content = json.dumps(request).encode()
        assert server.ask("POST", path, content).status < 500, request


@pytest.mark.parametrize("text", [b"\\ud800", b"a \\udc00 b", b"\\ud83d\\u0041", b"\xff"], ids=str)
def test_what_is_no_unicode_is_an_error_that_names_the_field(server, text):
    bodies = {
        "text": b'{"model": "tickets", "k": 2, "text": ["a", "%s", "b"]}' % text,
        "rows": b'{"rows": [{"item": "%s"}], "model": "orders"}' % text,
        "model": b'{"text": "a", "model": "%s"}' % text,
    }
    for field, body in bodies.items():
        answer = server.ask("POST", "/predict", body)
        assert answer.status == 400
        assert answer.json["error"].startswith(f"{field} is not JSON: ")
    assert server.predict(model="tickets", text="\U0001f600").status == 200


@linux
def test_explanations_take_bounded_memory(models):
    texts = {"words": "w1 v1 " * 10_000, "tickets": "a b card " * 6_666}
    with in_process(*map(models.get, texts), "--no-access-log") as server:
        assert server.predict(model="words", text="w1", explain=True).status == 200
        usual, statuses = server.memory(), set()
        for name, text in texts.items():
            for k in (1, 5):
                for length in (len(text), 10_000, 2_000):
                    answer = server.predict(model=name, text=text[:length], explain=True, k=k)
                    statuses.add((length, k, answer.status))
        assert server.memory("VmHWM") - usual < 64 * MB
        assert {status for length, k, status in statuses if k == 5 and length > 10_000} == {413}
        assert {status for length, _, status in statuses if length == 2_000} == {200}


def test_an_explanation_looks_at_the_time_for_every_label(one_thread, monkeypatch):
    real = LTLSClassifier.explain
    n_labels = []

    def explain(self, X, labels):
        n_labels.append(len(labels))
        time.sleep(0.3)
        return real(self, X, labels)

    with one_thread(timeout=0.5) as (server, _):
        assert server.predict(text="a", k=3, explain=True).status == 200  # counts the parts
        monkeypatch.setattr(LTLSClassifier, "explain", explain)
        assert server.predict(text="a", k=3, explain=True).status == 504
    assert n_labels == [1, 1]


def test_equal_indices_with_large_values(server):
    row = {"indices": [3] * 100_000, "values": [1e15] * 100_000}
    for proba in (True, False):
        answer = server.predict(model="codes", rows=[row], proba=proba)
        assert answer.status == 422
        assert "at most 1e+15" in answer.json["error"]
