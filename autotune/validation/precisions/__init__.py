"""The cost of a precision: errors of a model's outputs on given inputs."""
