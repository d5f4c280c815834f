"""Random small graphs against ONNX Runtime: ``python -m tests.fuzz --count 1000``."""
