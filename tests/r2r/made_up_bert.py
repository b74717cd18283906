"""A small language model of BERT's kind with random weights, and the same by torch's own layers."""

from __future__ import annotations

import json
from pathlib import Path
from string import ascii_lowercase

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

HIDDEN, HEADS, INNER, LONGEST = 16, 2, 40, 24
WORDS = ("walk", "past", "the", "bed", "door", "stop", "left", "right", "turn", "wal", "##ing", "##most", ".", ",")
PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, *ascii_lowercase[:20], *(f"##{x}" for x in ascii_lowercase[:20]))
"""No word with letters after t, other than these, has pieces."""

Weights = dict[str, Tensor]


def random_weights(layers: int, seed: int = 0) -> Weights:
    """By the names of the public files."""
    chance = torch.Generator().manual_seed(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(PIECES), HIDDEN),
        "embeddings.position_embeddings.weight": (LONGEST, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
        "embeddings.LayerNorm.weight": (HIDDEN,),
        "embeddings.LayerNorm.bias": (HIDDEN,),
    }
    for layer in range(layers):
        sizes = {
            "attention.self.query": (HIDDEN, HIDDEN),
            "attention.self.key": (HIDDEN, HIDDEN),
            "attention.self.value": (HIDDEN, HIDDEN),
            "attention.output.dense": (HIDDEN, HIDDEN),
            "attention.output.LayerNorm": (HIDDEN,),
            "intermediate.dense": (INNER, HIDDEN),
            "output.dense": (HIDDEN, INNER),
            "output.LayerNorm": (HIDDEN,),
        }
        for name, shape in sizes.items():
            shapes[f"encoder.layer.{layer}.{name}.weight"] = shape
            shapes[f"encoder.layer.{layer}.{name}.bias"] = shape[:1]
    return {name: 0.5 * torch.randn(*shape, generator=chance) for name, shape in shapes.items()}


def write_bert(folder: Path, layers: int = 2, prefix: str = "") -> Path:
    """The three files of a model."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"num_attention_heads": HEADS, "num_hidden_layers": layers, "max_position_embeddings": LONGEST}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    weights = {f"{prefix}{name}": value for name, value in random_weights(layers).items()}
    save_file(weights, folder / "model.safetensors")
    return folder


class Reference:
    """The first layers of the same model by torch's own encoder, in double precision."""

    def __init__(self, layers: int, used: int) -> None:
        weights = {name: value.double() for name, value in random_weights(layers).items()}
        self._weights = weights
        one = nn.TransformerEncoderLayer(
            HIDDEN, HEADS, INNER, dropout=0.0, activation="gelu", layer_norm_eps=1e-12, batch_first=True,
            norm_first=False, dtype=torch.float64,
        )  # fmt: skip
        self._encoder = nn.TransformerEncoder(one, used, enable_nested_tensor=False).eval()
        for layer in range(used):
            own = f"encoder.layer.{layer}"
            projections = [f"{own}.attention.self.{part}" for part in ("query", "key", "value")]
            found = {
                f"self_attn.in_proj_{kind}": torch.cat([weights[f"{name}.{kind}"] for name in projections])
                for kind in ("weight", "bias")
            }
            names = {
                "self_attn.out_proj": "attention.output.dense",
                "linear1": "intermediate.dense",
                "linear2": "output.dense",
                "norm1": "attention.output.LayerNorm",
                "norm2": "output.LayerNorm",
            }
            for ours, theirs in names.items():
                found |= {f"{ours}.{kind}": weights[f"{own}.{theirs}.{kind}"] for kind in ("weight", "bias")}
            self._encoder.layers[layer].load_state_dict(found)

    def __call__(self, ids: list[int]) -> Tensor:
        """[pieces, hidden] of one text, without padding."""
        weights = self._weights
        rows = weights["embeddings.word_embeddings.weight"][torch.tensor(ids)]
        rows = rows + weights["embeddings.position_embeddings.weight"][: len(ids)]
        rows = rows + weights["embeddings.token_type_embeddings.weight"][0]
        norm = weights["embeddings.LayerNorm.weight"], weights["embeddings.LayerNorm.bias"]
        rows = nn.functional.layer_norm(rows, (HIDDEN,), *norm, 1e-12)
        with torch.no_grad():
            found: Tensor = self._encoder(rows.unsqueeze(0))[0]
        return found
