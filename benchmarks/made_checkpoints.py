"""Makes checkpoints with true headers and no data, small or as large as the largest there are, within seconds.

Data regions are holes in sparse files, so a checkpoint of 1.5 TB takes some MB of disk. The writers know nothing of
freehold's readers: sizes come from the few types spelled out here, so a test that compares the two compares two
independent counts. Read :func:`write_gguf` and :func:`write_safetensors`.

    python benchmarks/made_checkpoints.py k3-neuron DIR     9 GGUF shards, 2,573 tensors, 330,160,710,016 bytes
    python benchmarks/made_checkpoints.py k3-native DIR     96 safetensors shards, 1.56 TB

Does not do: weights; an engine that loads such a file finds zeros.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

GGUF_TYPES = {
    "F32": (0, 1, 4),
    "F16": (1, 1, 2),
    "Q4_1": (3, 32, 20),
    "Q8_0": (8, 32, 34),
    "Q2_K": (10, 256, 84),
    "Q4_K": (12, 256, 144),
    "Q6_K": (14, 256, 210),
    "IQ1_S": (19, 256, 50),
    "BF16": (30, 1, 2),
}
"""Number, weights per block, bytes per block."""

SAFETENSORS_BITS = {"F32": 32, "BF16": 16, "F16": 16, "I64": 64, "U8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F4": 4}
KINDS = {
    "u8": (0, "B"),
    "u16": (2, "H"),
    "u32": (4, "I"),
    "i32": (5, "i"),
    "f32": (6, "f"),
    "bool": (7, "?"),
    "u64": (10, "Q"),
}


class Made(NamedTuple):
    """One tensor to be: row-major shape."""

    name: str
    shape: tuple[int, ...]
    type: str


def gguf_bytes(tensor: Made) -> int:
    """Payload of a GGUF tensor."""
    _, weights, size = GGUF_TYPES[tensor.type]
    return math.prod(tensor.shape) // weights * size


def safetensors_bytes(tensor: Made) -> int:
    """Payload of a safetensors tensor."""
    return math.prod(tensor.shape) * SAFETENSORS_BITS[tensor.type] // 8


def gguf_value(value: Any, order: str = "<") -> bytes:
    """A metadata value with its type; ``(kind, number)`` picks the type of a number or of a list of numbers."""
    if isinstance(value, str):
        data = value.encode()
        return struct.pack(f"{order}IQ", 8, len(data)) + data
    if isinstance(value, list):
        texts = [v.encode() for v in value]
        head = struct.pack(f"{order}IIQ", 9, 8, len(texts))
        return head + b"".join(struct.pack(f"{order}Q", len(t)) + t for t in texts)
    kind, number = value if isinstance(value, tuple) else ("u32", value)
    code, layout = KINDS[kind]
    if isinstance(number, list):
        return struct.pack(f"{order}IIQ{len(number)}{layout}", 9, code, len(number), *number)
    return struct.pack(f"{order}I{layout}", code, number)


def gguf_header(
    tensors: Sequence[Made],
    metadata: Mapping[str, Any],
    *,
    version: int = 3,
    order: str = "<",
    alignment: int = 32,
    offsets: Sequence[int] | None = None,
    num_tensors: int | None = None,
    num_keys: int | None = None,
) -> tuple[bytes, int]:
    """A GGUF header without its final padding, and the length of the data it promises; the keywords make it lie."""
    counts = (len(tensors) if num_tensors is None else num_tensors, len(metadata) if num_keys is None else num_keys)
    parts = [b"GGUF", struct.pack(f"{order}IQQ", version, *counts)]
    for key, value in metadata.items():
        name = key.encode()
        parts += [struct.pack(f"{order}Q", len(name)), name, gguf_value(value, order)]
    offset = end = 0
    for position, tensor in enumerate(tensors):
        name = tensor.name.encode()
        at = offset if offsets is None else offsets[position]
        parts += [struct.pack(f"{order}Q", len(name)), name, struct.pack(f"{order}I", len(tensor.shape))]
        parts.append(struct.pack(f"{order}{len(tensor.shape)}Q", *reversed(tensor.shape)))
        parts.append(struct.pack(f"{order}IQ", GGUF_TYPES[tensor.type][0], at))
        end = max(end, at + gguf_bytes(tensor))
        offset = -(-(offset + gguf_bytes(tensor)) // alignment) * alignment
    return b"".join(parts), end


def write_gguf(path: Path, tensors: Sequence[Made], metadata: Mapping[str, Any], **lies: Any) -> Path:
    """Write a GGUF file whose data is a hole, padded at its end as llama.cpp does."""
    alignment = lies.get("alignment", 32)
    header, data_bytes = gguf_header(tensors, metadata, **lies)
    with path.open("wb") as file:
        file.write(header)
        start = -(-len(header) // alignment) * alignment
        file.truncate(start + -(-data_bytes // alignment) * alignment)
    return path


def write_gguf_shards(
    folder: Path, stem: str, tensors: Sequence[Made], metadata: Mapping[str, Any], num_shards: int
) -> list[Path]:
    """Write a split GGUF; only the first shard has the model's metadata, as llama-gguf-split does it."""
    folder.mkdir(parents=True, exist_ok=True)
    per_shard = -(-len(tensors) // num_shards)
    paths = []
    for number in range(num_shards):
        part = tensors[number * per_shard : (number + 1) * per_shard]
        split = {
            "split.no": ("u16", number),
            "split.count": ("u16", num_shards),
            "split.tensors.count": ("i32", len(tensors)),
        }
        name = f"{stem}-{number + 1:05d}-of-{num_shards:05d}.gguf"
        paths.append(write_gguf(folder / name, part, {**(metadata if number == 0 else {}), **split}))
    return paths


def safetensors_header(tensors: Iterable[Made]) -> tuple[bytes, int]:
    """A safetensors header with its length field, padded to 8 bytes, and the length of the data."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in tensors:
        end = offset + safetensors_bytes(tensor)
        entries[tensor.name] = {"dtype": tensor.type, "shape": tensor.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, offset


def write_safetensors(path: Path, tensors: Iterable[Made]) -> Path:
    """Write a safetensors file whose data is a hole."""
    header, data_bytes = safetensors_header(tensors)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + data_bytes)
    return path


def write_safetensors_shards(
    folder: Path, tensors: Sequence[Made], num_shards: int, config: Mapping[str, Any] | None = None
) -> list[Path]:
    """Write a sharded safetensors checkpoint with its index and configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    per_shard = -(-len(tensors) // num_shards)
    paths, weight_map = [], {}
    for number in range(num_shards):
        part = tensors[number * per_shard : (number + 1) * per_shard]
        name = f"model-{number + 1:05d}-of-{num_shards:05d}.safetensors"
        paths.append(write_safetensors(folder / name, part))
        weight_map |= dict.fromkeys((t.name for t in part), name)
    total = sum(map(safetensors_bytes, tensors))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return paths


# --- the largest there is -------------------------------------------------------------------------------------------

WIDTH, VOCABULARY, HEADS, LAYERS, EXPERTS, LATENT, SHARED = 7168, 163_840, 96, 93, 896, 3584, 6144
INNER = HEADS * 128
MLA_LAYERS = frozenset([*range(3, LAYERS, 4), LAYERS - 1])
K3_METADATA = {
    "general.architecture": "kimi-k3",
    "kimi-k3.block_count": LAYERS,
    "kimi-k3.embedding_length": WIDTH,
    "kimi-k3.attention.head_count": HEADS,
    "kimi-k3.expert_count": EXPERTS,
    "kimi-k3.expert_used_count": 16,
    "kimi-k3.vocab_size": VOCABULARY,
    "kimi-k3.context_length": 2**20,
}


def k3_neuron_tensors() -> Iterator[Made]:
    """Every tensor of the Kimi-K3 Neuron IQ1_S GGUF, from the model's published dimensions."""
    yield Made("token_embd.weight", (VOCABULARY, WIDTH), "F16")
    yield Made("output.weight", (VOCABULARY, WIDTH), "F16")
    yield Made("output_norm.weight", (WIDTH,), "F32")
    yield Made("output_res_score.weight", (WIDTH,), "F32")
    mla = {
        "attn_q_a.weight": ((1536, WIDTH), "Q8_0"),
        "attn_q_a_norm.weight": ((1536,), "F32"),
        "attn_q_b.weight": ((HEADS * 192, 1536), "Q8_0"),
        "attn_kv_a_mqa.weight": ((576, WIDTH), "Q8_0"),
        "attn_kv_a_norm.weight": ((512,), "F32"),
        "attn_k_b.weight": ((HEADS, 512, 128), "Q8_0"),
        "attn_v_b.weight": ((HEADS, 128, 512), "Q8_0"),
        "attn_gate.weight": ((INNER, WIDTH), "Q8_0"),
    }
    linear = {
        **{f"attn_{n}.weight": ((INNER, WIDTH), "Q8_0") for n in "qkv"},
        **{f"ssm_conv1d_{n}.weight": ((INNER, 4), "F32") for n in "qkv"},
        "ssm_g.weight": ((INNER, WIDTH), "Q8_0"),
        "ssm_f_a.weight": ((128, WIDTH), "Q8_0"),
        "ssm_f_b.weight": ((INNER, 128), "Q8_0"),
        "ssm_beta.weight": ((HEADS, WIDTH), "Q8_0"),
        "ssm_dt.bias": ((INNER,), "F32"),
        "ssm_a": ((HEADS,), "F32"),
        "ssm_norm.weight": ((128,), "F32"),
    }
    dense = {f"ffn_{n}.weight": ((33792, WIDTH), "Q8_0") for n in ("gate", "up")}
    dense["ffn_down.weight"] = ((WIDTH, 33792), "Q8_0")
    sparse = {
        "ffn_gate_inp.weight": ((EXPERTS, WIDTH), "F32"),
        "exp_probs_b.bias": ((EXPERTS,), "F32"),
        "ffn_routed_down.weight": ((LATENT, WIDTH), "Q8_0"),
        "ffn_routed_up.weight": ((WIDTH, LATENT), "Q8_0"),
        "ffn_routed_norm.weight": ((LATENT,), "F32"),
        "ffn_gate_exps.weight": ((EXPERTS, 1536, LATENT), "IQ1_S"),
        "ffn_up_exps.weight": ((EXPERTS, 1536, LATENT), "IQ1_S"),
        "ffn_down_exps.weight": ((EXPERTS, LATENT, 1536), "IQ1_S"),
        "ffn_gate_shexp.weight": ((SHARED, WIDTH), "Q8_0"),
        "ffn_up_shexp.weight": ((SHARED, WIDTH), "Q8_0"),
        "ffn_down_shexp.weight": ((WIDTH, SHARED), "Q8_0"),
    }
    always = {f"{n}.weight": ((WIDTH,), "F32") for n in ("attn_norm", "ffn_norm", "attn_res_score", "ffn_res_score")}
    always["attn_output.weight"] = ((WIDTH, INNER), "Q8_0")
    for layer in range(LAYERS):
        rows = always | (mla if layer in MLA_LAYERS else linear) | (dense if layer == 0 else sparse)
        for name, (shape, kind) in rows.items():
            yield Made(f"blk.{layer}.{name}", shape, kind)


def write_k3_neuron(folder: Path) -> list[Path]:
    """Write the nine shards of Kimi-K3 Neuron: 330 GB to look at, some hundred kB on disk."""
    return write_gguf_shards(folder, "k3-neuron-iq1s", list(k3_neuron_tensors()), K3_METADATA, 9)


K3_CONFIG = {
    "architectures": ["KimiK3ForConditionalGeneration"],
    "model_type": "kimi_k3",
    "text_config": {
        "model_type": "kimi_linear",
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "intermediate_size": 33792,
        "num_experts": EXPERTS,
        "num_experts_per_token": 16,
        "num_shared_experts": 2,
        "moe_intermediate_size": 3072,
        "routed_expert_hidden_size": LATENT,
        "max_position_embeddings": 2**20,
        "tie_word_embeddings": False,
        "eos_token_id": 163585,
        "bos_token_id": 163584,
    },
}


def k3_native_tensors(*, num_layers: int = LAYERS, num_experts: int = EXPERTS) -> Iterator[Made]:
    """The language model of Kimi-K3 as its safetensors name it: bfloat16, experts in MXFP4 with their scales."""
    top = "language_model."
    yield Made(f"{top}model.embed_tokens.weight", (VOCABULARY, WIDTH), "BF16")
    yield Made(f"{top}lm_head.weight", (VOCABULARY, WIDTH), "BF16")
    yield Made(f"{top}model.norm.weight", (WIDTH,), "BF16")
    for n in ("proj", "norm"):
        yield Made(f"{top}model.output_attn_res_{n}.weight", (WIDTH,), "BF16")
    mla = {
        "q_a_proj.weight": (1536, WIDTH),
        "q_a_layernorm.weight": (1536,),
        "q_b_proj.weight": (HEADS * 192, 1536),
        "kv_a_proj_with_mqa.weight": (576, WIDTH),
        "kv_a_layernorm.weight": (512,),
        "kv_b_proj.weight": (HEADS * 256, 512),
        "g_proj.weight": (INNER, WIDTH),
    }
    linear = {
        **{f"{n}_proj.weight": (INNER, WIDTH) for n in "qkvg"},
        **{f"{n}_conv1d.weight": (INNER, 1, 4) for n in "qkv"},
        "f_a_proj.weight": (128, WIDTH),
        "f_b_proj.weight": (INNER, 128),
        "b_proj.weight": (HEADS, WIDTH),
        "dt_bias": (INNER,),
        "A_log": (1, 1, HEADS, 1),
        "o_norm.weight": (128,),
    }
    for layer in range(num_layers):
        place = f"{top}model.layers.{layer}."
        for n in ("input_layernorm", "post_attention_layernorm"):
            yield Made(f"{place}{n}.weight", (WIDTH,), "BF16")
        for n in ("self_attention_res", "mlp_res"):
            yield Made(f"{place}{n}_proj.weight", (WIDTH,), "BF16")
            yield Made(f"{place}{n}_norm.weight", (WIDTH,), "BF16")
        for name, shape in (mla if layer in MLA_LAYERS else linear).items():
            yield Made(f"{place}self_attn.{name}", shape, "BF16")
        yield Made(f"{place}self_attn.o_proj.weight", (WIDTH, INNER), "BF16")
        if layer == 0:
            yield from _mlp(f"{place}mlp.", 33792)
            continue
        place += "block_sparse_moe."
        yield Made(f"{place}gate.weight", (num_experts, WIDTH), "BF16")
        yield Made(f"{place}gate.e_score_correction_bias", (num_experts,), "F32")
        yield Made(f"{place}routed_expert_down_proj.weight", (LATENT, WIDTH), "BF16")
        yield Made(f"{place}routed_expert_up_proj.weight", (WIDTH, LATENT), "BF16")
        yield Made(f"{place}routed_expert_norm.weight", (LATENT,), "BF16")
        yield from _mlp(f"{place}shared_experts.", SHARED)
        for expert in range(num_experts):
            for n, rows, columns in (("w1", 3072, LATENT), ("w2", LATENT, 3072), ("w3", 3072, LATENT)):
                yield Made(f"{place}experts.{expert}.{n}.weight_packed", (rows, columns // 2), "U8")
                yield Made(f"{place}experts.{expert}.{n}.weight_scale", (rows, columns // 32), "U8")


def _mlp(place: str, width: int) -> Iterator[Made]:
    yield Made(f"{place}gate_proj.weight", (width, WIDTH), "BF16")
    yield Made(f"{place}up_proj.weight", (width, WIDTH), "BF16")
    yield Made(f"{place}down_proj.weight", (WIDTH, width), "BF16")


def write_k3_native(folder: Path, *, num_shards: int = 96, **sizes: int) -> list[Path]:
    """Write Kimi-K3's language model as safetensors shards."""
    return write_safetensors_shards(folder, list(k3_native_tensors(**sizes)), num_shards, K3_CONFIG)


def main() -> None:
    """Write what the command line names."""
    what, folder = sys.argv[1], Path(sys.argv[2])
    paths = {"k3-neuron": write_k3_neuron, "k3-native": write_k3_native}[what](folder)
    sizes = [path.stat() for path in paths]
    apparent, real = sum(s.st_size for s in sizes), sum(s.st_blocks * 512 for s in sizes)
    sys.stdout.write(f"{len(paths)} files, {apparent:,} bytes to look at, {real:,} on disk\n")


if __name__ == "__main__":
    main()
