"""What a precision costs: errors of a model's outputs on given inputs."""
