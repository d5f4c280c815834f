"""``python -m tests.zoo.strangers FOLDER``: exports of architectures that neither the zoo nor the tests contain.

They show how the importer does on models that nobody looked at while it was written. Random weights; models of
transformers have their default widths but few layers. Needs the extra ``zoo``, as ``tests.zoo.exports`` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.zoo.exports import Export, _settle, _write, write_exports
from tests.zoo.own_strangers import OWN

TIMM: dict[str, int] = {
    **dict.fromkeys(("convnextv2_atto", "hiera_tiny_224", "efficientvit_b0", "efficientvit_m0", "fastvit_t8"), 224),
    **dict.fromkeys(("ghostnetv2_100", "repvit_m0_9", "cait_xxs24_224", "davit_tiny", "coatnet_nano_rw_224"), 224),
    **dict.fromkeys(("mobilevitv2_050", "pvt_v2_b0", "twins_svt_small", "visformer_tiny", "gmlp_s16_224"), 224),
    **dict.fromkeys(("volo_d1_224", "sequencer2d_s", "hrnet_w18_small", "dla34", "selecsls42b"), 224),
    **dict.fromkeys(("ese_vovnet19b_dw", "regnetz_b16", "eca_nfnet_l0", "lcnet_050", "eva02_tiny_patch14_224"), 224),
    **dict.fromkeys(("focalnet_tiny_srf", "inception_next_atto", "poolformerv2_s12", "rdnet_tiny", "starnet_s1"), 224),
    **dict.fromkeys(("res2net50_26w_4s", "mambaout_femto", "shvit_s1", "swiftformer_xs", "mvitv2_tiny"), 224),
    **dict.fromkeys(("coat_lite_tiny", "tnt_s_patch16_224", "vit_relpos_small_patch16_224"), 224),
    **dict.fromkeys(("crossvit_9_240",), 240),
    **dict.fromkeys(("swinv2_tiny_window8_256", "halonet26t", "lambda_resnet26t", "mobilenetv5_300m"), 256),
}
"""timm's name of a model → height and width of its image."""

TEXT, IMAGE = "text", "image"

Inputs = str | dict[str, tuple[int, ...]]

LAYERS = {
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers"), 2),
    "vocab_size": 5000,
    "use_cache": False,
}
"""Settings that keep a model small without changing a width, by their names in configurations."""

SEQ2SEQ: Inputs = {"input_ids": (1, 24), "decoder_input_ids": (1, 12)}
SOUND: Inputs = {"input_values": (1, 8000)}
TRANSFORMERS: dict[str, tuple[dict[str, Any], Inputs]] = {
    "DebertaModel": ({}, TEXT),
    "ModernBertModel": ({"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}, TEXT),
    "FunnelBaseModel": ({"block_sizes": [1, 1, 1], "num_hidden_layers": None}, TEXT),
    "LongformerModel": ({"attention_window": 32}, {"input_ids": (1, 64)}),
    "BigBirdModel": ({"block_size": 8}, {"input_ids": (1, 128)}),
    "RoFormerModel": ({}, TEXT),
    "XLNetModel": ({}, TEXT),
    "MobileBertModel": ({}, TEXT),
    "ConvBertModel": ({}, TEXT),
    "FNetModel": ({}, {"input_ids": (1, 64)}),
    "NystromformerModel": ({}, {"input_ids": (1, 64)}),
    "CanineModel": ({}, {"input_ids": (1, 256)}),
    "T5EncoderModel": ({}, TEXT),
    "T5Model": ({}, SEQ2SEQ),
    "BartModel": ({}, SEQ2SEQ),
    "PegasusModel": ({"d_model": 512, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}, SEQ2SEQ),
    "GPTNeoXModel": ({"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096}, TEXT),
    "FalconModel": ({"hidden_size": 1024, "num_attention_heads": 16}, TEXT),
    "PhiModel": ({"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096}, TEXT),
    "GemmaModel": (
        {"hidden_size": 1024, "intermediate_size": 2048, "head_dim": 128, "num_attention_heads": 8}
        | {"num_key_value_heads": 8},
        TEXT,
    ),
    "Qwen2Model": (
        {"hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14, "num_key_value_heads": 2},
        TEXT,
    ),
    "BloomModel": ({"hidden_size": 1024, "n_head": 16}, TEXT),
    "MambaModel": ({}, {"input_ids": (1, 16)}),
    "RwkvModel": ({"hidden_size": 768, "attention_hidden_size": 768}, {"input_ids": (1, 12)}),
    "WhisperModel": (
        {
            "vocab_size": None,
            "max_source_positions": 200,
            "d_model": 384,
            "encoder_attention_heads": 6,
            "decoder_attention_heads": 6,
        },
        {"input_features": (1, 80, 400), "decoder_input_ids": (1, 8)},
    ),
    "Wav2Vec2Model": ({}, SOUND),
    "HubertModel": ({}, SOUND),
    "SEWModel": ({}, SOUND),
    "WavLMModel": ({}, SOUND),
    "ASTModel": ({}, {"input_values": (1, 1024, 128)}),
    "EncodecModel": ({}, {"input_values": (1, 1, 4800)}),
    "DacModel": ({}, {"input_values": (1, 1, 5120)}),
    "ClapAudioModel": (
        {"patch_embeds_hidden_size": 96, "depths": [1, 1, 2, 1]},
        {"input_features": (1, 1, 1001, 64)},
    ),
    "SiglipVisionModel": ({"image_size": 224}, IMAGE),
    "Blip2VisionModel": ({"hidden_size": 704, "num_attention_heads": 8, "intermediate_size": 2816}, IMAGE),
    "OwlViTVisionModel": ({"image_size": 224}, IMAGE),
    "DetrForObjectDetection": ({"use_timm_backbone": True, "backbone": "resnet18"}, IMAGE),
    "YolosModel": ({"image_size": [224, 224]}, IMAGE),
    "SegformerForSemanticSegmentation": ({}, IMAGE),
    "DPTForDepthEstimation": (
        {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536, "image_size": 224}
        | {"backbone_out_indices": [0, 1, 2, 3], "num_hidden_layers": 4, "neck_hidden_sizes": [48, 96, 192, 384]},
        IMAGE,
    ),
    "GLPNForDepthEstimation": ({}, IMAGE),
    "Dinov2Model": ({"image_size": 224}, IMAGE),
    "Swin2SRModel": ({"image_size": 64, "depths": [2, 2], "num_heads": [6, 6]}, {"pixel_values": (1, 3, 64, 64)}),
    "VideoMAEModel": ({"num_frames": 4}, {"pixel_values": (1, 4, 3, 224, 224)}),
    "LayoutLMModel": ({}, {"input_ids": (1, 32), "bbox": (1, 32, 4)}),
    "LayoutLMv3Model": ({}, {"input_ids": (1, 32), "bbox": (1, 32, 4), "pixel_values": (1, 3, 224, 224)}),
    "TrOCRForCausalLM": ({}, {"input_ids": (1, 16)}),
    "PatchTSTModel": ({"num_input_channels": 3, "context_length": 96}, {"past_values": (1, 96, 3)}),
    "PatchTSMixerModel": ({"context_length": 64, "num_input_channels": 3}, {"past_values": (1, 64, 3)}),
    "SuperPointForKeypointDetection": ({}, {"pixel_values": (1, 3, 96, 128)}),
}
"""Class of transformers → fields of its configuration besides ``LAYERS`` (None: its default), and the shapes of its
inputs by name."""

KINDS: dict[str, dict[str, tuple[int, ...]]] = {
    TEXT: {"input_ids": (1, 32), "attention_mask": (1, 32)},
    IMAGE: {"pixel_values": (1, 3, 224, 224)},
}

SWAPPED = frozenset(
    {
        "hiera_tiny_224",
        "eva02_tiny_patch14_224",
        "XLNetModel",
        "FNetModel",
        "T5EncoderModel",
        "EncodecModel",
        "CanineModel",
        "PatchTSTModel",
    },
)
"""Models that the exporter whose turn it is cannot write, but the other one can."""

MOST_OUTPUTS = 4
"""Outputs of a model of transformers that are exported: its first ones."""


def strangers() -> Iterator[tuple[str, Export]]:
    """Name of a file and what writes it; the two exporters of PyTorch take turns."""
    for number, (name, size) in enumerate(TIMM.items()):
        how = ("ts", "dyn")[(number + (name in SWAPPED)) % 2]
        yield f"timm.{name}.{how}", _timm(name, size, how)
    for number, (name, (fields, inputs)) in enumerate(TRANSFORMERS.items()):
        how = ("dyn", "ts")[(number + (name in SWAPPED)) % 2]
        yield f"transformers.{name}.{how}", _transformer(name, fields, inputs, how)
    for name, export in OWN.items():
        yield f"own.{name}", export


def _timm(name: str, size: int, how: str) -> Export:
    def export(path: Path) -> None:
        import timm  # optional: an extra
        import torch  # optional: an extra

        torch.manual_seed(0)
        model = timm.create_model(name, pretrained=False)
        image = torch.rand(1, 3, size, size)
        _settle(model, (image,))
        _write(model, (image,), path, how)

    return export


def _transformer(name: str, fields: dict[str, Any], inputs: Inputs, how: str) -> Export:
    def export(path: Path) -> None:
        import torch  # optional: an extra
        import transformers  # optional: an extra

        kind: Any = getattr(transformers, name)
        known = {field: value for field, value in LAYERS.items() if hasattr(kind.config_class(), field)}
        chosen = {field: value for field, value in {**known, **fields}.items() if value is not None}
        torch.manual_seed(0)
        model = kind(kind.config_class(**chosen))
        shapes = KINDS[inputs] if isinstance(inputs, str) else inputs
        names = [*shapes]

        class Plain(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, *arguments: Any) -> Any:
                answer = self.model(**dict(zip(names, arguments, strict=True)), return_dict=True)
                return tuple(_tensors(answer.to_tuple()))[:MOST_OUTPUTS]

        _write(Plain(), tuple(_argument(argument, shapes[argument]) for argument in names), path, how)

    return export


def _argument(name: str, shape: Sequence[int]) -> Any:
    """Random numbers, or what ``name`` holds of whole numbers."""
    import torch  # optional: an extra

    if name.endswith("input_ids"):
        return torch.randint(3, 400, tuple(shape))
    if name == "attention_mask":
        return torch.ones(*shape, dtype=torch.int64)
    if name == "bbox":
        return torch.tensor([10, 20, 30, 40]).expand(*shape).contiguous()
    return torch.randn(*shape)


def _tensors(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _tensors(value)
        elif hasattr(value, "dtype"):
            yield value


if __name__ == "__main__":
    write_exports(strangers(), __doc__)
