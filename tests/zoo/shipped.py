"""``python -m tests.zoo.shipped FOLDER``: trained models that public packages ship, taken out of their wheels."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGES = ("rapidocr-onnxruntime", "silero-vad", "magika", "basic-pitch", "ddddocr", "faster-whisper")
"""On PyPI. A wheel is downloaded without what it depends on, and nothing is installed."""

SHAPES = {
    "rapidocr-onnxruntime.ch_PP-OCRv4_rec_infer": ("x:1x3x48x320",),
    "silero-vad.silero_vad": ("input:1x576", "state:2x1x128"),
    "silero-vad.silero_vad_16k_op15": ("input:1x576", "state:2x1x128"),
    "silero-vad.silero_vad_half": ("input:1x576", "state:2x1x128"),
    "silero-vad.silero_vad_op18_ifless": ("input:1x576", "state:2x1x128"),
}
"""Model → shapes of its inputs, where the sizes that a refusal suggests are none that it can read."""


def main(folder: Path) -> None:
    """Put the models of every package into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        with tempfile.TemporaryDirectory() as place:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", place, package]
            if subprocess.run(command, check=False).returncode:
                print(f"{package} cannot be downloaded")
                continue
            for archive in Path(place).glob("*.whl"):
                with zipfile.ZipFile(archive) as wheel:
                    for name in wheel.namelist():
                        if name.endswith(".onnx"):
                            (folder / f"{package}.{Path(name).name}").write_bytes(wheel.read(name))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
