"""The Open Inference Protocol, spoken by NVIDIA's own client."""

import json
import struct

import numpy as np
import pytest
from serving import in_thread

from ltls import LTLSClassifier, load
from ltls.serve import Settings

triton = pytest.importorskip("tritonclient.http", reason="needs tritonclient: run make test-all")


@pytest.fixture
def client(server):
    client = triton.InferenceServerClient(server.address)
    yield client
    client.close()


def tensor(name, values, datatype, binary=True):
    given = triton.InferInput(name, list(values.shape), datatype)
    given.set_data_from_numpy(values, binary_data=binary)
    return given


def decoded(values):
    """Return texts, which the client gives as bytes or, from JSON, as strings."""
    return [
        [each.decode() if isinstance(each, bytes) else each for each in row]
        for row in values.tolist()
    ]


def test_health_and_metadata(client, models):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("tickets")
    assert not client.is_model_ready("other")
    assert client.get_server_metadata()["name"] == "ltls"
    metadata = client.get_model_metadata("tickets")
    assert metadata["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    version = metadata["versions"][0]
    assert client.is_model_ready("tickets", version)
    assert not client.is_model_ready("tickets", "1")
    outputs = {
        each["name"]: each["datatype"] for each in client.get_model_metadata("codes")["outputs"]
    }
    assert outputs == {"labels": "INT64", "scores": "FP32", "probabilities": "FP32"}
    dense = client.get_model_metadata("codes")["inputs"]
    assert dense == [{"name": "features", "datatype": "FP32", "shape": [-1, 12]}]
    outputs = [each["name"] for each in client.get_model_metadata("margins")["outputs"]]
    assert outputs == ["labels", "scores"]


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_tables(client, models, binary):
    inputs = client.get_model_metadata("orders")["inputs"]
    types = {each["name"]: each["datatype"] for each in inputs}
    assert types == {"item": "BYTES", "price": "FP64", "shop": "BYTES"}
    given = [
        tensor("item", np.array([b"green tea", b"milk"], object), "BYTES", binary),
        tensor("price", np.array([20.0, 2.0]), "FP64", binary),
        tensor("shop", np.array([b"", b"north"], object), "BYTES", binary),
    ]
    rows = [
        {"item": "green tea", "price": 20, "shop": None},
        {"item": "milk", "price": 2, "shop": "north"},
    ]
    labels, scores = load(models["orders"]).predict_topk(rows, 5)
    answer = client.infer("orders", given)
    assert decoded(answer.as_numpy("labels")) == labels.tolist()
    np.testing.assert_allclose(answer.as_numpy("scores"), scores, rtol=1e-4)
    with pytest.raises(triton.InferenceServerException, match="are item, price, shop"):
        client.infer("orders", given[:2])
    given[1] = tensor("price", np.array([20.0]), "FP64", binary)
    with pytest.raises(triton.InferenceServerException, match="same number of rows"):
        client.infer("orders", given)


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_columns_of_vectors(client, models, binary):
    inputs = {each["name"]: each for each in client.get_model_metadata("parcels")["inputs"]}
    assert inputs["vector"] == {"name": "vector", "datatype": "FP32", "shape": [-1, -1]}
    given = [
        tensor("item", np.array([b"green tea", b"milk"], object), "BYTES", binary),
        tensor("vector", np.array([[1, -1], [0, 0]], np.float32), "FP32", binary),
    ]
    rows = [{"item": "green tea", "vector": [1, -1]}, {"item": "milk", "vector": [0, 0]}]
    labels, scores = load(models["parcels"]).predict_topk(rows, 5)
    answer = client.infer("parcels", given)
    assert decoded(answer.as_numpy("labels")) == labels.tolist()
    np.testing.assert_allclose(answer.as_numpy("scores"), scores, rtol=1e-4)
    given[1] = tensor("vector", np.ones((2, 3), np.float32), "FP32", binary)
    with pytest.raises(triton.InferenceServerException, match="'vector' has 3 numbers"):
        client.infer("parcels", given)


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize("shape", [(3,), (3, 1)], ids=str)
def test_texts(client, models, binary, shape):
    texts = ["my card is gone", "été: mot de passé", ""]
    values = np.array([text.encode() for text in texts], object).reshape(shape)
    outputs = [
        triton.InferRequestedOutput(name, binary_data=binary) for name in ("labels", "scores")
    ]
    result = client.infer(
        "tickets",
        [tensor("text", values, "BYTES", binary)],
        outputs=outputs,
        request_id="7",
        parameters={"k": 2},
    )
    labels, scores = load(models["tickets"]).predict_topk(texts, 2)
    assert decoded(result.as_numpy("labels")) == labels.tolist()
    np.testing.assert_allclose(result.as_numpy("scores"), scores, rtol=1e-4)
    assert result.get_response()["id"] == "7"
    assert result.get_response()["model_name"] == "tickets"


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize("kind", ["INT32", "INT64"])
def test_sparse_rows(client, models, binary, kind):
    X = np.zeros((3, 12), np.float32)
    X[0, [3, 5]] = 1, 0.5
    X[2, 11] = 2
    dtype = np.int32 if kind == "INT32" else np.int64
    inputs = [
        tensor("indptr", np.array([0, 2, 2, 3], dtype), kind, binary),
        tensor("indices", np.array([3, 5, 11], dtype), kind, binary),
        tensor("values", np.array([1, 0.5, 2], np.float32), "FP32", binary),
    ]
    result = client.infer("codes", inputs)
    labels, scores = load(models["codes"]).predict_topk(X, 5)
    np.testing.assert_array_equal(result.as_numpy("labels"), labels)
    np.testing.assert_allclose(result.as_numpy("scores"), scores, rtol=1e-4)
    single = client.infer(
        "codes",
        [
            tensor("indices", np.array([[11]], dtype), kind, binary),
            tensor("values", np.array([[2]], np.float32), "FP32", binary),
        ],
    )
    np.testing.assert_array_equal(single.as_numpy("labels"), labels[2:])


@pytest.mark.parametrize(
    ("datatype", "dtype"), [("FP32", np.float32), ("FP64", np.float64), ("UINT8", np.uint8)]
)
def test_dense_rows_and_probabilities(client, models, datatype, dtype):
    X = np.eye(12, dtype=dtype)[:4]
    outputs = [triton.InferRequestedOutput(name) for name in ("labels", "probabilities")]
    result = client.infer("codes", [tensor("features", X, datatype)], outputs=outputs)
    labels, probabilities = load(models["codes"]).predict_topk(X.astype(float), 5, proba=True)
    np.testing.assert_array_equal(result.as_numpy("labels"), labels)
    np.testing.assert_allclose(result.as_numpy("probabilities"), probabilities, rtol=1e-5)


def test_a_mistake_is_an_exception_of_the_client(client):
    values = np.array([b"a"], object)
    with pytest.raises(triton.InferenceServerException, match="no model 'other'"):
        client.infer("other", [tensor("text", values, "BYTES")])
    with pytest.raises(triton.InferenceServerException, match="inputs of model 'tickets' are text"):
        client.infer("tickets", [tensor("query", values, "BYTES")])


def infer(server, name, inputs, **others):
    return server.ask("POST", f"/v2/models/{name}/infer", {"inputs": inputs, **others})


def text(data, shape=(1,), datatype="BYTES", **others):
    return {"name": "text", "shape": list(shape), "datatype": datatype, "data": data, **others}


@pytest.mark.parametrize(
    ("inputs", "others", "message"),
    [
        ([], {}, "inputs: expected `array` of length >= 1"),
        ([text(["a"], (2,))], {}, "must have 2 values, got 1"),
        ([text(["a"], (-1,))], {}, "inputs[0].shape[0]: expected `int` >= 0"),
        ([text(["a"], (10**4298,) * 8)], {}, "inputs[0].shape[0]: expected `int` <= "),
        ([text(["a"], (2,) * 3)], {}, "of shape [2, 2, 2] must have 8 values, got 1"),
        ([text(["a"], (1,) * 9)], {}, "inputs[0].shape: expected `array` of length <= 8"),
        ([text([1])], {}, "must hold BYTES: [0]: expected `str`, got `int`"),
        ([text(["a"], datatype="FP32")], {}, "must be BYTES"),
        ([text(["a"])], {"parameters": {"k": 0}}, "parameters.k: expected `int` >= 1"),
        ([text(["a"])], {"parameters": {"k": True}}, "parameters.k: expected `int`"),
        ([text(["a"])], {"outputs": [{"name": "vectors"}]}, "got 'vectors'"),
        (
            [text(["a"])],
            {"outputs": [{"name": "scores"}, {"name": "probabilities"}]},
            "scores or probabilities, got both",
        ),
        ([text(None, parameters={"binary_data_size": 9})], {}, "0 bytes follow the JSON part"),
        ([text(None, parameters={"binary_data_size": "x"})], {}, "binary_data_size: expected"),
        ([text(None, parameters={"binary_data_size": 10**4298})], {}, "binary_data_size: expected"),
        ([text(None, parameters={"binary_data_size": 2**40})] * 256, {}, "adds up to 2814749767"),
        ([{"name": "text"}], {}, "inputs[0]: object missing required field `shape`"),
    ],
)
def test_mistakes_of_texts(server, inputs, others, message):
    answer = infer(server, "tickets", inputs, **others)
    assert answer.status == 400
    assert message in answer.json["error"]


def numbers(name, data, datatype="INT64", shape=None):
    return {"name": name, "shape": shape or [len(data)], "datatype": datatype, "data": data}


@pytest.mark.parametrize(
    ("inputs", "status", "message"),
    [
        ([numbers("indices", [0])], 400, "are indptr, indices, values, or features"),
        (
            [numbers("indices", [0.5]), numbers("values", [1])],
            400,
            "[0]: expected `int`, got `float`",
        ),
        ([numbers("indices", [2**70]), numbers("values", [1])], 400, "outside of INT64"),
        ([numbers("indices", [0], "FP32"), numbers("values", [1])], 400, "INT32 or INT64"),
        ([numbers("features", [0], "COMPLEX")], 400, "must be one of INT8"),
        ([numbers("indices", [0]), numbers("values", [1, 2])], 422, "the same length, got 1 and 2"),
        ([numbers("indices", [99]), numbers("values", [1])], 422, "integers from 0 to 11"),
        (
            [numbers("indptr", [0, 3, 1]), numbers("indices", [0]), numbers("values", [1])],
            422,
            "indptr must start with 0, must not decrease",
        ),
        (
            [numbers("indptr", []), numbers("indices", [0]), numbers("values", [1])],
            422,
            "at least one row",
        ),
        (
            [numbers("indptr", [0, 5]), numbers("indices", [0]), numbers("values", [1])],
            422,
            "indptr must start with 0, must not decrease, and must end with 1",
        ),
        ([numbers("features", [1, 2, 3], "FP32", [1, 3])], 422, "a list of 12 numbers, got 3"),
        ([numbers("features", [1] * 12, "FP32", [2, 2**40])], 400, "values, got 12"),
        ([numbers("features", [1] * 12, "FP32", [2**40] * 8)], 413, "rows, got 1099511627776"),
        ([numbers("features", ["1"] * 12, "FP32", [1, 12])], 400, "expected `float`, got `str`"),
        ([numbers("features", [1e39] * 12, "FP32", [1, 12])], 422, "X contains infinity"),
        ([numbers("features", [300] * 12, "UINT8", [1, 12])], 400, "outside of UINT8"),
        ([numbers("features", [1] * 12, "FP32", [12])], 422, "must be a list of 12 numbers"),
    ],
)
def test_mistakes_of_rows(server, inputs, status, message):
    answer = infer(server, "codes", inputs)
    assert answer.status == status
    assert message in answer.json["error"]


@pytest.mark.parametrize(
    ("content", "size", "message"),
    [
        (struct.pack("<I", 3) + b"abc", 7, None),
        (struct.pack("<I", 4) + b"abc", 7, "cut off"),
        (b"ab", 2, "cut off"),
        (struct.pack("<I", 1) + b"\xff", 5, "UTF-8"),
        (
            struct.pack("<I", 3) + b"abc",
            8,
            "7 bytes follow the JSON part, but binary_data_size adds up to 8",
        ),
        (struct.pack("<I", 1) * 2, 8, "cut off"),
    ],
)
def test_binary_texts(server, content, size, message):
    head = {"inputs": [text(None, parameters={"binary_data_size": size})]}
    encoded = json.dumps(head).encode()
    answer = server.ask(
        "POST",
        "/v2/models/tickets/infer",
        encoded + content,
        Inference_Header_Content_Length=str(len(encoded)),
    )
    assert answer.status == (200 if message is None else 400)
    assert message is None or message in answer.json["error"]


@pytest.mark.parametrize("length", ["-1", "x", "99999999", "9" * 500, "٣"])
def test_a_wrong_header_length_is_rejected(server, length):
    answer = server.ask(
        "POST",
        "/v2/models/tickets/infer",
        b"{}",
        Inference_Header_Content_Length=length.encode(),
    )
    assert answer.status == 400
    assert "inference-header-content-length" in answer.json["error"]


@pytest.mark.parametrize("shape", [[1, 2**40, 2**40, 0], [2**40, 2**40, 0], [2**40] * 8])
@pytest.mark.parametrize("name", ["features", "values"])
def test_a_tensor_of_no_values_may_still_be_too_large(server, name, shape):
    inputs = [numbers(name, [], shape=shape)]
    if name == "values":
        inputs.append(numbers("indices", [], shape=[0]))
    answer = server.ask("POST", "/v2/models/codes/infer", {"inputs": inputs})
    assert 400 <= answer.status < 500
    assert f"tensor {name!r}" in answer.json["error"] or "row" in answer.json["error"]


@pytest.mark.parametrize("binary", [True, False])
def test_labels_that_are_numbers_are_exact(tmp_path, binary):
    labels = [16777217.0, 1e300, 3.0]
    path = tmp_path / "prices.ltls"
    LTLSClassifier(random_state=0).fit(np.eye(3), labels).save(path)
    with in_thread(Settings(models={"prices": path}, reload=0)) as server:
        client = triton.InferenceServerClient(server.address)
        given = [tensor("features", np.eye(3, dtype=np.float32), "FP32")]
        outputs = [triton.InferRequestedOutput(name, binary) for name in ("labels", "scores")]
        result = client.infer("prices", given, outputs=outputs)
        described = {each["name"]: each for each in client.get_model_metadata("prices")["outputs"]}
        client.close()
    for name in ("labels", "scores"):
        assert result.get_output(name)["datatype"] == described[name]["datatype"]
    found = result.as_numpy("labels")[:, 0]
    assert [float(label) for label in found] == labels
