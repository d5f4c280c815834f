"""``python -m tests.zoo.deployed FOLDER``: exports of models that people deploy, at their real widths.

Weights are random. Encoders of text and images have all their layers where that keeps the file below 150 MB, and fewer
otherwise. Needs the extra ``zoo``, as ``tests.zoo.exports`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx

from tests.zoo.exports import Export, _settle, _write, write_exports
from tests.zoo.strangers import IMAGE, Inputs, _timm, _transformer

TIMM: dict[str, int] = {
    **dict.fromkeys(("fastvit_mci0", "mvitv2_small", "xception41"), 224),
    **dict.fromkeys(("convnext_tiny", "efficientnet_lite0", "mobilenetv4_conv_small", "repvit_m1_1"), 224),
    **dict.fromkeys(("efficientvit_b1", "nextvit_small", "resnet50d", "regnety_008", "vit_small_patch16_224"), 224),
}
"""timm's name of a model → height and width of its image."""

BERT = {"vocab_size": 5000, "attention_probs_dropout_prob": 0.0}
MINILM = BERT | {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}


def _text(batch: int, tokens: int) -> Inputs:
    return {"input_ids": (batch, tokens), "attention_mask": (batch, tokens)}


WIDE = {"hidden_size": 768, "num_hidden_layers": 4}
WHISPER = {"d_model": 512, "encoder_layers": 6, "encoder_attention_heads": 8, "encoder_ffn_dim": 2048}
DINO = {"hidden_size": 384, "num_attention_heads": 6, "num_hidden_layers": 12}
QWEN = {"hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14, "num_key_value_heads": 2}

TRANSFORMERS: dict[str, tuple[str, dict[str, Any], Inputs]] = {
    "minilm_l6_16": ("BertModel", MINILM | {"num_hidden_layers": 6}, _text(1, 16)),
    "minilm_l6_128": ("BertModel", MINILM | {"num_hidden_layers": 6}, _text(1, 128)),
    "bge_small_64": ("BertModel", MINILM | {"num_hidden_layers": 12}, _text(1, 64)),
    "e5_base_128": ("BertModel", BERT | WIDE, _text(1, 128)),
    "reranker_8x96": ("BertForSequenceClassification", MINILM | {"num_hidden_layers": 6}, _text(8, 96)),
    "mpnet_base_48": ("MPNetModel", WIDE, _text(1, 48)),
    "modernbert_128": (
        "ModernBertModel",
        WIDE | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
        _text(1, 128),
    ),
    "deberta_v3_small_64": (
        "DebertaV2Model",
        WIDE | {"relative_attention": True, "position_buckets": 256},
        _text(1, 64),
    ),
    "xlm_roberta_ner_64": ("XLMRobertaForTokenClassification", WIDE, _text(1, 64)),
    "t5_small_encoder_64": ("T5EncoderModel", {"num_layers": 6}, _text(1, 64)),
    "whisper_base_encoder": (
        "WhisperModel",
        WHISPER | {"decoder_layers": 1, "decoder_attention_heads": 8, "vocab_size": None},
        {"input_features": (1, 80, 3000), "decoder_input_ids": (1, 4)},
    ),
    "moonshine_encoder": ("MoonshineModel", {}, {"input_values": (1, 32000), "decoder_input_ids": (1, 4)}),
    "wav2vec2_base": ("Wav2Vec2Model", {"num_hidden_layers": 4}, {"input_values": (1, 16000)}),
    "conformer": (
        "Wav2Vec2ConformerModel",
        {"num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
        {"input_values": (1, 16000)},
    ),
    "ast_audio": ("ASTModel", {"num_hidden_layers": 2, "max_length": 256}, {"input_values": (1, 256, 128)}),
    "dinov2_small": ("Dinov2Model", DINO | {"image_size": 224, "patch_size": 14}, IMAGE),
    "siglip_base": ("SiglipVisionModel", {"num_hidden_layers": 4, "image_size": 224}, IMAGE),
    "clip_vit_b32": ("CLIPVisionModel", {"num_hidden_layers": 6, "image_size": 224, "patch_size": 32}, IMAGE),
    "clip_text": (
        "CLIPTextModel",
        {"num_hidden_layers": 6, "vocab_size": 5000, "eos_token_id": 2},
        {"input_ids": (1, 77)},
    ),
    "segformer_b0": (
        "SegformerForSemanticSegmentation",
        {"num_hidden_layers": None},
        {"pixel_values": (1, 3, 256, 256)},
    ),
    "depth_anything_small": (
        "DepthAnythingForDepthEstimation",
        {"num_hidden_layers": None},
        {"pixel_values": (1, 3, 252, 252)},
    ),
    "rt_detr_r18": (
        "RTDetrForObjectDetection",
        {"num_hidden_layers": None, "encoder_layers": None, "decoder_layers": 3},
        {"pixel_values": (1, 3, 320, 320)},
    ),
    "d_fine": (
        "DFineForObjectDetection",
        {"num_hidden_layers": None, "encoder_layers": None, "decoder_layers": 3},
        {"pixel_values": (1, 3, 320, 320)},
    ),
    "yolos_tiny": (
        "YolosForObjectDetection",
        {
            "hidden_size": 192,
            "num_attention_heads": 3,
            "intermediate_size": 768,
            "num_hidden_layers": 12,
            "image_size": [256, 256],
        },
        {"pixel_values": (1, 3, 256, 256)},
    ),
    "qwen_prompt_32": ("Qwen2Model", QWEN, {"input_ids": (1, 32)}),
    "llama_prompt_16": (
        "LlamaModel",
        {"hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 8},
        {"input_ids": (1, 16)},
    ),
    "trocr_decoder_16": (
        "TrOCRForCausalLM",
        {"d_model": 256, "decoder_attention_heads": 8, "decoder_ffn_dim": 1024},
        {"input_ids": (1, 16)},
    ),
    "time_series_patches": (
        "PatchTSTModel",
        {
            "num_input_channels": 7,
            "context_length": 512,
            "patch_length": 16,
            "patch_stride": 8,
            "d_model": 128,
            "num_attention_heads": 16,
            "ffn_dim": 256,
            "num_hidden_layers": 3,
        },
        {"past_values": (1, 512, 7)},
    ),
}
"""Name → class of transformers, fields of its configuration besides those of ``strangers``, and its inputs."""

TORCHVISION: dict[str, tuple[int, ...]] = {
    "video.s3d": (1, 3, 16, 224, 224),
    "video.r2plus1d_18": (1, 3, 8, 112, 112),
    "video.r3d_18": (1, 3, 8, 112, 112),
    "segmentation.fcn_resnet50": (1, 3, 192, 192),
    "segmentation.deeplabv3_mobilenet_v3_large": (1, 3, 320, 320),
    "mobilenet_v3_large": (1, 3, 224, 224),
    "efficientnet_v2_s": (1, 3, 224, 224),
}


def _modules() -> dict[str, tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]]:
    import torch  # optional: an extra

    from tests.zoo import deployed_modules as own

    def image(*shape: int) -> Callable[[], tuple[Any, ...]]:
        return lambda: (torch.rand(*shape),)

    return {
        "yolo11n_320": (own.Detector, image(1, 3, 320, 320)),
        "yolo11n_640": (own.Detector, image(1, 3, 640, 640)),
        "arcface_r18": (own.FaceEmbedding, image(1, 3, 112, 112)),
        "u2net_small": (own.NestedUnet, image(1, 3, 256, 256)),
        "nafnet_w32": (own.PlainNet, image(1, 3, 128, 128)),
        "esrgan_3": (own.DenseUpscaler, image(1, 3, 64, 64)),
        "dlrm": (own.ClickRanker, lambda: (torch.rand(16, 13), torch.randint(0, 9999, (16, 26)))),
        "ft_transformer": (own.TabularTransformer, image(32, 24)),
        "hifigan_v2": (own.SpeechSynthesis, image(1, 80, 64)),
    }


OWN = (
    "yolo11n_320",
    "yolo11n_640",
    "arcface_r18",
    "u2net_small",
    "nafnet_w32",
    "esrgan_3",
    "dlrm",
    "ft_transformer",
    "hifigan_v2",
)


def deployed() -> Iterator[tuple[str, Export]]:
    """Name of a file and what writes it; the two exporters of PyTorch take turns."""
    for number, (name, size) in enumerate(TIMM.items()):
        yield name, _timm(name, size, ("ts", "dyn")[number % 2])
    for number, (name, (kind, fields, inputs)) in enumerate(TRANSFORMERS.items()):
        yield (
            name,
            _either(*(_transformer(kind, fields, inputs, how) for how in (("dyn", "ts"), ("ts", "dyn"))[number % 2])),
        )
    for number, (name, shape) in enumerate(TORCHVISION.items()):
        yield name.split(".")[-1], _torchvision(name, shape, ("ts", "dyn")[number % 2])
    for name in OWN:
        yield name, _module(name)


def _either(first: Export, second: Export) -> Export:
    """Export by ``first``, or by ``second`` where it cannot."""

    def export(path: Path) -> None:
        try:
            first(path)
            onnx.checker.check_model(path, full_check=True)  # TorchScript's exporter writes sizes that do not fit
        except Exception:  # an exporter may fail in any way
            second(path)

    return export


def _torchvision(name: str, shape: tuple[int, ...], how: str) -> Export:
    def export(path: Path) -> None:
        import torch  # optional: an extra
        import torchvision  # optional: an extra

        make: Any = torchvision.models
        for part in name.split("."):
            make = getattr(make, part)
        torch.manual_seed(0)
        model = make(weights=None, **({"weights_backbone": None} if name.startswith("segmentation") else {}))
        _settle(model, (torch.rand(shape),))
        _write(model, (torch.rand(shape),), path, how)

    return export


def _module(name: str) -> Export:
    def export(path: Path) -> None:
        import torch  # optional: an extra

        make, arguments = _modules()[name]
        torch.manual_seed(0)
        model, inputs = make(), arguments()
        if inputs[0].ndim == 4:
            _settle(model, inputs)
        _write(model, inputs, path, "ts")

    return export


if __name__ == "__main__":
    write_exports(deployed(), __doc__)
