"""A small HTTP server for an artifact, with nothing but the standard library.

    python docs/examples/server.py model.tuned --port 8000
    curl -s localhost:8000/                     # names, shapes and types
    curl -s localhost:8000/run -d '{"data": [[…]]}'
    curl -s localhost:8000/run --data-binary @inputs.npz -H 'Content-Type: application/x-npz' -o outputs.npz
    curl -s localhost:8000/health               # 200 as long as a request is answered in time
    curl -s localhost:8000/metrics              # requests and latencies, for Prometheus
    kill -HUP PID                               # serve the artifact that now lies there; no request is dropped
    kill PID                                    # end when the requests that have come are answered, 10 s at most

One session serves all threads, on as many streams as the artifact was tuned for (docs/serving.md). A wrong input is
answered with what would be right, and a request that finds the queue full too long with 503.
"""

import argparse
import bisect
import io
import json
import signal
import threading
import time
import zipfile
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

import autotune

BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, float("inf"))
"""Upper bounds of the histogram of latencies."""

NPZ = "application/x-npz"

MOST_BYTES = 1 << 28
"""Largest body of a request."""


class Metrics:
    """Requests by their status, and a histogram of how long answered ones took."""

    def __init__(self):
        self._lock = threading.Lock()
        self._counts, self._seconds, self._codes = [0] * len(BUCKETS_S), 0.0, {}

    def add(self, code, seconds):
        """Count one request."""
        with self._lock:
            self._codes[code] = self._codes.get(code, 0) + 1
            if code == 200:
                self._counts[bisect.bisect_left(BUCKETS_S, seconds)] += 1
                self._seconds += seconds

    def text(self):
        """In Prometheus' text format."""
        with self._lock:
            lines = ["# TYPE tune_requests_total counter"]
            lines += [f'tune_requests_total{{code="{code}"}} {count}' for code, count in sorted(self._codes.items())]
            lines.append("# TYPE tune_request_seconds histogram")
            total = 0
            for bound, count in zip(BUCKETS_S, self._counts, strict=True):
                total += count
                told = "+Inf" if bound == float("inf") else f"{bound:g}"
                lines.append(f'tune_request_seconds_bucket{{le="{told}"}} {total}')
            lines += [f"tune_request_seconds_sum {self._seconds:.6f}", f"tune_request_seconds_count {total}"]
        return "\n".join(lines) + "\n"


class Server(ThreadingHTTPServer):
    """One session behind HTTP.

    Args:
        artifact: its path.
        address: host and port.
        serve: streams, queue and batches of the session.
        timeout_s: how long a request may wait for a stream.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, artifact, address, serve=None, timeout_s=10.0):
        self.session = autotune.InferenceSession(artifact, serve=serve)
        self.metrics, self.timeout_s = Metrics(), timeout_s
        self.in_progress = set()  # threads that answer a request
        super().__init__(address, Handler)

    def outputs(self, feed):
        """Output name → array."""
        types = {arg.name: arg.dtype for arg in self.session.get_inputs()}
        arrays = {name: np.asarray(value, types.get(name)) for name, value in feed.items()}
        made = self.session.run(None, arrays, timeout_s=self.timeout_s)
        return dict(zip((arg.name for arg in self.session.get_outputs()), made, strict=True))

    def drain(self, patience_s=10.0):
        """Return when the requests in progress are answered, at the latest after ``patience_s`` seconds."""
        end = time.monotonic() + patience_s
        while self.in_progress and time.monotonic() < end:
            time.sleep(0.01)

    def probe(self):
        """Run once on zeros, as large as one is where a size is open."""
        shapes = {
            arg.name: [size if isinstance(size, int) else 1 for size in arg.shape] for arg in self.session.get_inputs()
        }
        self.outputs({name: np.zeros(shape) for name, shape in shapes.items()})


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        session = self.server.session
        if self.path == "/metrics":
            self.answer(200, self.server.metrics.text().encode(), "text/plain; version=0.0.4")
        elif self.path == "/health":
            try:
                self.server.probe()
            except autotune.AutotuneError as error:
                self.answer_json(503, {"status": "failing", "error": str(error)})
                return
            self.answer_json(200, {"status": "ok", "streams": session.streams, "threads": session.threads})
        else:
            described = {"inputs": session.get_inputs(), "outputs": session.get_outputs()}
            keys = ("name", "shape", "type")
            self.answer_json(
                200, {k: [{key: getattr(arg, key) for key in keys} for arg in v] for k, v in described.items()}
            )

    def do_POST(self):
        began, length = time.perf_counter(), self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            self.close_connection = True
            code = self.answer_json(413, {"error": f"Content-Length is {length[:20]}; it must be at most {MOST_BYTES}"})
        else:
            self.server.in_progress.add(threading.get_ident())
            try:
                code = self.run(self.rfile.read(int(length)))
            finally:
                self.server.in_progress.discard(threading.get_ident())
        self.server.metrics.add(code, time.perf_counter() - began)

    def run(self, body):
        """Answer a request for outputs; its status."""
        packed = self.headers.get("Content-Type") == NPZ
        try:
            feed = dict(np.load(io.BytesIO(body), allow_pickle=False)) if packed else json.loads(body)
            outputs = self.server.outputs(feed)
        except autotune.RunError as error:  # no stream in time, or a run that failed
            return self.answer_json(503, {"error": str(error)})
        except (autotune.UsageError, ValueError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
            return self.answer_json(400, {"error": str(error)})
        if not packed:
            return self.answer_json(200, {name: output.tolist() for name, output in outputs.items()})
        file = io.BytesIO()
        np.savez(file, **outputs)
        return self.answer(200, file.getvalue(), NPZ)

    def answer_json(self, code, data):
        return self.answer(code, json.dumps(data).encode(), "application/json")

    def answer(self, code, body, kind):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return code

    def log_message(self, *_):
        """Silence: one line per request is the caller's business."""


def make_server(artifact, port, host="127.0.0.1", serve=None):
    """A server that is not yet serving."""
    return Server(artifact, (host, port), serve)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifact")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--streams", type=int, help="requests side by side; default what the artifact was tuned for")
    parser.add_argument("--max-batch", type=int, default=1, help="most rows that are joined into one run")
    parser.add_argument("--max-wait-ms", type=float, default=2.0, help="how long a request waits to be joined")
    given = parser.parse_args()
    serving = autotune.ServeOptions(given.streams, max_batch=given.max_batch, max_wait_s=given.max_wait_ms / 1e3)
    with make_server(given.artifact, given.port, serve=serving) as server:
        # In a thread of its own: a signal's handler runs between two requests of the main thread.
        signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=server.session.reload).start())
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
        print(f"http://127.0.0.1:{server.server_port}/", flush=True)
        server.serve_forever()
        server.drain()
