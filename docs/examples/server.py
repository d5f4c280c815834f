"""A small HTTP server for an artifact, with nothing but the standard library.

    python docs/examples/server.py model.tuned --port 8000
    curl -s localhost:8000/                     # names, shapes and types
    curl -s localhost:8000/run -d '{"data": [[…]]}'

One session serves all threads: calls take turns, and a wrong input is answered with what would be right.
"""

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

import autotune


def make_server(artifact, port, host="127.0.0.1"):
    """A server that is not yet serving."""
    session = autotune.InferenceSession(artifact)

    def described(arguments):
        return [{"name": arg.name, "shape": arg.shape, "type": arg.type} for arg in arguments]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer(200, {"inputs": described(session.get_inputs()), "outputs": described(session.get_outputs())})

        def do_POST(self):
            try:
                given = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
                types = {arg.name: arg.dtype for arg in session.get_inputs()}
                feed = {name: np.asarray(value, types.get(name)) for name, value in given.items()}
                outputs = session.run(None, feed)
            except (autotune.UsageError, ValueError, AttributeError) as error:
                self.answer(400, {"error": str(error)})
                return
            names = [arg.name for arg in session.get_outputs()]
            self.answer(200, {name: output.tolist() for name, output in zip(names, outputs, strict=True)})

        def answer(self, code, data):
            body = json.dumps(data).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Silence: one line per request is the caller's business."""

    return ThreadingHTTPServer((host, port), Handler)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifact")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    with make_server(arguments.artifact, arguments.port) as server:
        print(f"http://127.0.0.1:{server.server_port}/")
        server.serve_forever()
