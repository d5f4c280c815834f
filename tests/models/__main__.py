"""``python -m tests.models NAME OUT.onnx [--seed N]`` writes a model; without arguments it lists the names."""

import argparse
import sys
from pathlib import Path

from tests.models.catalog import MODELS, save


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.models", description="Write a test model with random weights"
    )
    parser.add_argument("name", nargs="?", choices=sorted(MODELS))
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.name is None:
        print("\n".join(MODELS))
        return 0
    if arguments.out is None:
        parser.error("give the file to write")
    save(arguments.name, arguments.out, arguments.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
