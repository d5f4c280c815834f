"""docs/examples/server.py: health, metrics, both formats, refusals, and load on the loopback."""

import http.client
import importlib.util
import io
import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from autotune.runtime.serve_options import ServeOptions

PLACE = Path(__file__).parents[3] / "docs" / "examples" / "server.py"


@pytest.fixture(scope="module")
def server(tiny_built):
    spec = importlib.util.spec_from_file_location("example_server", PLACE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.make_server(tiny_built.artifact, 0, serve=ServeOptions(streams=2)) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(connection, method, path, body=None, kind="application/json"):
    connection.request(method, path, body, {"Content-Type": kind})
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.fixture
def connection(server):
    opened = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    yield opened
    opened.close()


def packed(array):
    file = io.BytesIO()
    np.savez(file, data=array)
    return file.getvalue()


def image(seed):
    return np.random.default_rng(seed).standard_normal((1, 16, 8, 8)).astype(np.float32)


def counted(connection):
    text = ask(connection, "GET", "/metrics")[1].decode()
    return {code: int(number) for code, number in re.findall(r'tune_requests_total\{code="(\d+)"\} (\d+)', text)}, text


def test_health_says_what_serves(connection):
    status, body = ask(connection, "GET", "/health")
    assert (status, json.loads(body)) == (200, {"status": "ok", "streams": 2, "threads": 1})


def test_both_formats_give_the_same(connection):
    array = image(0)
    status, body = ask(connection, "POST", "/run", json.dumps({"data": array.tolist()}))
    assert status == 200
    status, other = ask(connection, "POST", "/run", packed(array), "application/x-npz")
    assert status == 200
    with np.load(io.BytesIO(other)) as outputs:
        assert list(outputs) == list(json.loads(body))
        for name, output in json.loads(body).items():
            assert np.allclose(output, outputs[name], 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"{", "Expecting"), (b"[]", "attribute"), (b'{"date": []}', "did you mean 'data'"), (b"{}", "'data' is missing")],
)
def test_wrong_requests_are_told_what_is_right(connection, body, words):
    status, answer = ask(connection, "POST", "/run", body)
    assert status == 400
    assert words in json.loads(answer)["error"]


def test_metrics_count_answers_and_refusals(connection):
    before, _ = counted(connection)
    ask(connection, "POST", "/run", packed(image(0)), "application/x-npz")
    ask(connection, "POST", "/run", b"{")
    after, text = counted(connection)
    assert after["200"] == before.get("200", 0) + 1
    assert after["400"] == before.get("400", 0) + 1
    buckets = [int(number) for number in re.findall(r"_bucket\{le=\"[^\"]+\"\} (\d+)", text)]
    assert buckets == sorted(buckets)
    assert buckets[-1] == after["200"] == int(re.search(r"_count (\d+)", text)[1])


@pytest.mark.slow
def test_sixteen_clients_on_the_loopback_get_their_own_answers(server, connection, tiny_built):
    reference = onnxruntime.InferenceSession(str(tiny_built.model), providers=["CPUExecutionProvider"])
    images = [image(seed) for seed in range(16)]
    bodies = [packed(array) for array in images]
    wanted = [reference.run(["scores"], {"data": array})[0] for array in images]
    before, _ = counted(connection)
    wrong = []

    def client(number):
        own = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        for step in range(100):
            index = (number + step) % len(bodies)
            status, answer = ask(own, "POST", "/run", bodies[index], "application/x-npz")
            with np.load(io.BytesIO(answer)) as outputs:
                if status != 200 or not np.allclose(outputs["scores"], wanted[index], 1e-3, 1e-5):
                    wrong.append((number, step))
        own.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert wrong == []
    assert counted(connection)[0]["200"] - before.get("200", 0) == 1600


@pytest.mark.parametrize("length", ["-1", "x", str(1 << 40)])
def test_bodies_of_no_sensible_size_are_refused(server, length):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.putrequest("POST", "/run")
    connection.putheader("Content-Length", length)
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 413
    assert f"Content-Length is {length}" in json.loads(answer.read())["error"]
    connection.close()


def test_a_damaged_file_of_arrays_is_refused(connection):
    body = bytearray(packed(image(0)))
    body[60] ^= 255
    assert ask(connection, "POST", "/run", bytes(body), "application/x-npz")[0] == 400


def test_a_server_that_is_told_to_end_answers_first(tiny_built):
    command = [sys.executable, str(PLACE), str(tiny_built.artifact), "--port", "0", "--streams", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    port = int(process.stdout.readline().rstrip("/\n").rpartition(":")[2])
    stop, answers = threading.Event(), []

    def send():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        while not stop.is_set():
            try:
                answers.append(ask(connection, "POST", "/run", packed(image(0)), "application/x-npz")[0])
            except (ConnectionError, http.client.HTTPException):  # between two requests
                return

    threads = [threading.Thread(target=send) for _ in range(16)]
    for thread in threads:
        thread.start()
    while len(answers) < 50:
        time.sleep(0.01)
    process.terminate()
    assert process.wait(60) == 0
    stop.set()
    for thread in threads:
        thread.join()
    assert set(answers) == {200}
    assert "Traceback" not in process.stderr.read()
