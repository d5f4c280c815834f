"""``python -m tests.zoo.exports FOLDER``: fresh exports with random weights, by PyTorch's two exporters and skl2onnx.

Needs the extra ``zoo`` and nothing of this project, so that it runs in an environment of its own. A model that an
exporter cannot write is said and left out. Names ending in ``.ts`` are of the TorchScript exporter, in ``.dyn`` of the
newer one.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

OPSETS = {"ts": 17, "dyn": 18}
"""The opset of each exporter of PyTorch: what it writes when it is not told."""

IMAGE, SMALL = (1, 3, 224, 224), (1, 3, 160, 160)
TOKENS = 32

TORCHVISION = {
    **dict.fromkeys(("alexnet", "densenet121", "efficientnet_b0", "mnasnet0_5", "mobilenet_v2"), IMAGE),
    **dict.fromkeys(("mobilenet_v3_small", "regnet_y_400mf", "resnet18", "shufflenet_v2_x0_5"), IMAGE),
    **dict.fromkeys(("convnext_tiny", "maxvit_t", "squeezenet1_1", "swin_t"), IMAGE),
    "googlenet": IMAGE,
    "inception_v3": (1, 3, 299, 299),
    "segmentation.lraspp_mobilenet_v3_large": SMALL,
    "segmentation.deeplabv3_mobilenet_v3_large": SMALL,
    "video.mc3_18": (1, 3, 4, 64, 64),
}
"""torchvision's name of a model → shape of its input."""

DETECTORS = {
    "ssdlite320_mobilenet_v3_large": 320,
    "fasterrcnn_mobilenet_v3_large_320_fpn": 320,
    "ssd300_vgg16": 300,
    "retinanet_resnet50_fpn": 320,
    "fcos_resnet50_fpn": 320,
}
"""torchvision's detectors → height and width of the image. They take a list of images; the TorchScript exporter alone
writes them."""

TIMM = (
    *("vit_tiny_patch16_224", "deit_tiny_patch16_224", "mixer_s32_224", "mobilevit_xxs", "edgenext_xx_small"),
    *("ghostnet_100", "levit_128s", "pit_ti_224", "poolformer_s12", "xcit_nano_12_p16_224", "convmixer_768_32"),
    *("repvgg_a0", "fbnetc_100", "hardcorenas_a", "resmlp_12_224", "tiny_vit_5m_224", "efficientformer_l1"),
)
TEXT = (
    "Bert",
    "DistilBert",
    "Albert",
    "Roberta",
    "Electra",
    "MPNet",
    "DebertaV2",
    "GPT2",
    "OPT",
    "Llama",
    "SqueezeBert",
)
TINY = {
    "vocab_size": 500,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 128,
    "embedding_size": 64,
    "dim": 64,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 128,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "ffn_dim": 128,
    "word_embed_proj_dim": 64,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "use_cache": False,
}
"""Sizes that make a model of transformers tiny, under the names that its configurations use."""

Export = Callable[[Path], None]


def exports() -> Iterator[tuple[str, Export]]:
    """Name of a file and what writes it."""
    for how in OPSETS:
        for name, shape in TORCHVISION.items():
            yield f"torchvision.{name.split('.')[-1]}.{how}", _torchvision(name, shape, how)
        for name in TIMM:
            yield f"timm.{name}.{how}", _timm(name, how)
        for name in TEXT:
            yield f"transformers.{name}.{how}", _transformer(name, how)
        yield f"torch.lstm.{how}", _recurrent("LSTM", how)
        yield f"torch.gru.{how}", _recurrent("GRU", how)
    for name, size in DETECTORS.items():
        yield f"torchvision.{name}.ts", _detector(name, size)
    for name in PIPELINES:
        yield f"sklearn.{name}", _pipeline(name)


def define_nms() -> None:
    """Give torchvision the compiled operators that it and timm and transformers ask for when they are imported.

    A wheel of torchvision for CUDA, which is what PyPI has, does not load its operators beside a torch for CPUs. Models
    need none of them but detectors, which run ``nms`` while they are traced.
    """
    import torch  # optional: an extra

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

    def nms(boxes: Any, scores: Any, iou_threshold: float) -> Any:
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        kept: list[int] = []
        for one in scores.argsort(descending=True).tolist():
            low = torch.maximum(boxes[kept, :2], boxes[one, :2])
            high = torch.minimum(boxes[kept, 2:], boxes[one, 2:])
            shared = (high - low).clamp(min=0).prod(1)
            if bool((shared <= iou_threshold * (area[kept] + area[one] - shared)).all()):
                kept.append(one)
        return torch.tensor(kept, dtype=torch.int64)

    library.impl("nms", nms, "CPU")
    KEPT.append(library)


KEPT: list[Any] = []
"""Registrations of operators, which end with their objects."""


def _settle(model: Any, arguments: tuple[Any, ...]) -> None:
    """Let batch norms take their statistics from one pass over ``arguments``, as training would.

    Random weights alone make what flows through a deep network fade: MobileNetV2 then answers with the bias of its last
    layer, whatever the kernels before it compute. The pass is over normal numbers, as models are verified with
    (``random_inputs``): statistics of other images would make them grow from layer to layer.
    """
    import torch  # optional: an extra

    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.momentum = 1.0
    wide = tuple(torch.randn(4, *argument.shape[1:]) for argument in arguments)  # one number has no variance
    with torch.no_grad():
        model.train()(*wide)


def _write(model: Any, arguments: tuple[Any, ...], path: Path, how: str) -> None:
    import torch  # optional: an extra

    torch.onnx.export(model.eval(), arguments, str(path), opset_version=OPSETS[how], dynamo=how == "dyn", verbose=False)


def _torchvision(name: str, shape: tuple[int, ...], how: str) -> Export:
    def export(path: Path) -> None:
        import torch  # optional: an extra
        import torchvision  # optional: an extra

        more = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
        if name.startswith("segmentation"):
            more = {"weights_backbone": None}
        make: Any = torchvision.models
        for part in name.split("."):
            make = getattr(make, part)
        model = make(weights=None, **more)
        _settle(model, (torch.rand(shape),))
        _write(model, (torch.rand(shape),), path, how)

    return export


def _detector(name: str, size: int) -> Export:
    def export(path: Path) -> None:
        import torch  # optional: an extra
        import torchvision  # optional: an extra

        make = getattr(torchvision.models.detection, name)
        sizes = {"min_size": size, "max_size": size} if "resnet50" in name else {}  # others have theirs
        model = make(weights=None, weights_backbone=None, **sizes)
        if not hasattr(model, "rpn"):  # those with two stages would find no regions in normal numbers, and stop
            _find_something(model)
            _settle(model.backbone, (torch.rand(1, 3, size, size),))
        _write(model, ([torch.rand(3, size, size)],), path, "ts")

    return export


SPREADS = {"bbox": 0.1, "regression": 0.1, "cls_score": 1.2, "cls_logits": 0.1, "classification": 0.5}
"""Part of a weight's name → its spread, over the root of what it sums: boxes stay near their anchors, and scores do not
all become one."""


def _find_something(model: Any) -> None:
    """Random heads that find boxes of differing scores: fresh ones find none, or all with one score."""
    import torch  # optional: an extra

    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim < 2 or name.startswith("backbone.body"):
                continue
            spread = next((spread_of for part, spread_of in SPREADS.items() if part in name), 1.2)
            weight.normal_(0.0, spread / weight[0].numel() ** 0.5)
        for name, bias in model.named_parameters():
            if name.endswith("bias") and ("cls" in name or "classification" in name):
                bias.zero_()


def _timm(name: str, how: str) -> Export:
    def export(path: Path) -> None:
        import timm  # optional: an extra
        import torch  # optional: an extra

        model = timm.create_model(name, pretrained=False)
        _settle(model, (torch.rand(IMAGE),))
        _write(model, (torch.rand(IMAGE),), path, how)

    return export


def _transformer(name: str, how: str) -> Export:
    def export(path: Path) -> None:
        import torch  # optional: an extra
        import transformers  # optional: an extra

        config = getattr(transformers, f"{name}Config")(**TINY)
        model = getattr(transformers, f"{name}Model")(config)
        ids = torch.arange(TOKENS)[None] + 1

        class Plain(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, input_ids: Any, attention_mask: Any) -> Any:
                return self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]

        _write(Plain(), (ids, torch.ones_like(ids)), path, how)

    return export


def _recurrent(kind: str, how: str) -> Export:
    def export(path: Path) -> None:
        import torch  # optional: an extra

        model = getattr(torch.nn, kind)(32, 64, 2, batch_first=True, bidirectional=True)
        _write(model, (torch.rand(1, 20, 32),), path, how)

    return export


PIPELINES: dict[str, str] = {
    "logistic": "make_pipeline(StandardScaler(), LogisticRegression())",
    "random_forest": "RandomForestClassifier(20)",
    "extra_trees_regressor": "ExtraTreesRegressor(20)",
    "gradient_boosting": "GradientBoostingClassifier(n_estimators=20)",
    "hist_gradient_boosting": "HistGradientBoostingRegressor(max_iter=20)",
    "svr": "make_pipeline(MinMaxScaler(), SVR())",
    "linear_svc": "make_pipeline(Normalizer(), LinearSVC())",
    "pca_ridge": "make_pipeline(PCA(3), Ridge())",
    "mlp": "MLPClassifier((16,), max_iter=20)",
    "imputed_tree": "make_pipeline(SimpleImputer(), DecisionTreeClassifier(max_depth=5))",
    "k_means": "KMeans(4, n_init=2)",
    "nearest": "KNeighborsRegressor(3)",
    "gaussian_bayes": "GaussianNB()",
}
"""Name → scikit-learn's expression of a pipeline."""


def _pipeline(name: str) -> Export:
    def export(path: Path) -> None:
        import skl2onnx  # optional: an extra
        from sklearn.utils import all_estimators

        names: dict[str, Any] = dict(all_estimators())
        from sklearn.pipeline import make_pipeline

        rng = np.random.default_rng(0)
        x = rng.standard_normal((200, 6)).astype(np.float32)
        y = (x[:, 0] + x[:, 1] > 0).astype(np.int64) + (x[:, 2] > 1)
        model = eval(PIPELINES[name], {**names, "make_pipeline": make_pipeline})
        model.fit(x, y)
        path.write_bytes(skl2onnx.to_onnx(model, x[:1], target_opset={"": 17, "ai.onnx.ml": 3}).SerializeToString())

    return export


def write_exports(wanted: Iterable[tuple[str, Export]], description: str | None) -> None:
    """The command line of a list of exports: write each that is not in the folder yet, and say which cannot be."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="regular expression of names")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    try:
        import torchvision  # noqa: F401  # optional: an extra
    except RuntimeError:
        for module in [name for name in sys.modules if name.startswith("torchvision")]:
            del sys.modules[module]
        define_nms()
    for name, export in wanted:
        path = options.folder / f"{name}.onnx"
        if path.exists() or not re.search(options.only, name):
            continue
        try:
            export(path)
        except Exception as error:  # an exporter may fail in any way; the other models are still wanted
            path.unlink(missing_ok=True)
            print(f"{name} is not exported: {type(error).__name__}: {str(error).strip().splitlines()[:1]}")
        else:
            print(name)


if __name__ == "__main__":
    write_exports(exports(), __doc__)
