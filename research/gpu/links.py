"""``python -m research.gpu.links``: what a device takes to launch, copy and hand over, for ``lane_costs.py``.

Prints LAUNCH_S, HAND_OVER_S (latency of a copy) and COPY_BYTES_PER_S of both ways, and the device's own bandwidth.
"""

from __future__ import annotations

import sys

import tvm
from tvm import te

from autotune.backends.cuda.cuda_backend import DEVICE, CudaBackend
from autotune.backends.cuda.cuda_executor import address_of
from autotune.backends.cuda.device import device_target
from autotune.backends.cuda.driver import Driver
from autotune.backends.cuda.nvrtc import compile_kernels
from autotune.builder.device_profiles import measured_links
from autotune.graph.lanes import Lane
from schedules.lower import BASELINE, lower, normalise

LAUNCHES, RUNS = 200, 20
LARGE = 256 << 20


def main() -> int:
    if not tvm.cuda(0).exist:
        print("no CUDA device can be used here, so there is nothing to measure; run this on a machine with a GPU")
        return 1
    target, device, driver = device_target(), tvm.cuda(0), Driver()
    stream = driver.stream()
    device.set_raw_stream(int(stream))
    x = te.placeholder((32,), name="x")
    func = normalise(te.create_prim_func([x, te.compute((32,), lambda i: x[i] + 1.0, name="y")]))
    kernel = compile_kernels({"kernel": lower(func, BASELINE, target).mod["main"]}, target)[0]["kernel"]
    arrays = [tvm.runtime.empty((32,), "float32", device) for _ in range(2)]
    kernel(*arrays)

    def launch() -> None:
        for _ in range(LAUNCHES):
            kernel(*arrays)

    graph = driver.graph(stream, launch)
    large = [tvm.runtime.empty((LARGE,), "uint8", device) for _ in range(2)]
    launches: list[float] = []
    copies: list[float] = []
    for _ in range(RUNS):
        with driver.timed(stream, launches):
            driver.replay(graph, stream)
        with driver.timed(stream, copies):
            driver.call("cuMemcpyDtoDAsync", address_of(large[0]), address_of(large[1]), LARGE, stream)
    print(f"LAUNCH_S = {min(launches) / LAUNCHES:.2e}")
    print(f"device bandwidth {2 * LARGE / min(copies) / 1e9:.0f} GB/s")
    for way, link in measured_links(CudaBackend(), Lane(DEVICE, 0, target.threads, DEVICE)).items():
        print(f"{way}: HAND_OVER_S = {link.latency_s:.2e}, COPY_BYTES_PER_S = {link.bytes_per_s:.2e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
