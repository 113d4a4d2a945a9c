#!/usr/bin/env python3
"""Expand a llama-architecture GGUF into a safetensors folder that vLLM and transformers can load.

A reference for verification has to come from another engine than the one under test, and it has to hold the *same*
weights. So the quantized file itself is expanded: every block becomes the floats it stands for, nothing is rounded
(``float32``), and the tokenizer and chat template are rebuilt from the file's own metadata.

    pip install gguf numpy safetensors tokenizers
    python tools/gguf_to_safetensors.py MODEL.gguf OUTPUT_FOLDER

Read :func:`convert` first. Covers: architecture ``llama`` with a byte-level BPE vocabulary of the pre-tokenizer kinds
in ``PRE_TOKENIZERS``; anything else is refused.

Does not do: other architectures, or writing GGUF.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GLOBAL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
# How text is cut before BPE. Source: tokenizer.json of HuggingFaceTB/SmolLM2-135M-Instruct and openai-community/gpt2.
PRE_TOKENIZERS = {
    "smollm": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
}
CONTROL = 3  # gguf.TokenType.CONTROL


def halves_from_pairs(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Undo the row order llama.cpp gives query and key weights.

    A rotary embedding turns pairs of dimensions. llama.cpp's ``llama`` graph expects the two of a pair side by side
    (0 1 2 3 …); the Hugging Face graph expects them half a head apart (0 2 4 … 1 3 5 …).

    Shapes:
        rows: [num_heads * head_dim, hidden_size].
    """
    head_dim = rows.shape[0] // num_heads
    within_head = np.concatenate([np.arange(0, head_dim, 2), np.arange(1, head_dim, 2)])
    order = (np.arange(num_heads)[:, None] * head_dim + within_head[None, :]).reshape(-1)
    return rows[order]


def read_metadata(reader: gguf.GGUFReader) -> dict[str, Any]:
    """Every metadata value of the file, as plain Python values."""
    return {name: field.contents() for name, field in reader.fields.items()}


def expand_tensors(reader: gguf.GGUFReader, meta: dict[str, Any], dtype: str) -> Iterator[tuple[str, np.ndarray]]:
    """Each tensor under its Hugging Face name, dequantized."""
    num_heads = {"attn_q": meta["llama.attention.head_count"], "attn_k": meta["llama.attention.head_count_kv"]}
    for tensor in reader.tensors:
        rows = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if tensor.name in GLOBAL_NAMES:
            name = GLOBAL_NAMES[tensor.name]
        else:
            _, layer, kind, suffix = tensor.name.split(".")
            if kind in num_heads:
                rows = halves_from_pairs(rows, num_heads[kind])
            name = f"model.layers.{layer}.{LAYER_NAMES[kind]}.{suffix}"
        yield name, np.ascontiguousarray(rows.astype(dtype))


def build_tokenizer(meta: dict[str, Any]) -> Tokenizer:
    """The tokenizer the metadata describes."""
    tokens, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    pairs = [tuple(merge.split(" ", 1)) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=pairs))
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[meta["tokenizer.ggml.pre"]]()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True) for t, k in zip(tokens, kinds, strict=True) if k == CONTROL]
    )
    return tokenizer


def write_json(path: Path, value: object) -> None:
    """Write a value as indented JSON."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def convert(source: Path, target: Path, dtype: str = "float32") -> int:
    """Write ``target`` from ``source``; returns the number of tensors.

    Raises:
        ValueError: The file is of an architecture or tokenizer this script does not cover.
    """
    reader = gguf.GGUFReader(source)
    meta = read_metadata(reader)
    if meta["general.architecture"] != "llama":
        raise ValueError(f"architecture {meta['general.architecture']!r}, expected 'llama'")
    if meta["tokenizer.ggml.model"] != "gpt2" or meta.get("tokenizer.ggml.pre") not in PRE_TOKENIZERS:
        raise ValueError(f"tokenizer {meta['tokenizer.ggml.model']!r} / {meta.get('tokenizer.ggml.pre')!r}")
    target.mkdir(parents=True, exist_ok=True)
    tensors = dict(expand_tensors(reader, meta, dtype))
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    build_tokenizer(meta).save(str(target / "tokenizer.json"))

    tokens = meta["tokenizer.ggml.tokens"]
    bos_id, eos_id = meta["tokenizer.ggml.bos_token_id"], meta["tokenizer.ggml.eos_token_id"]
    context = meta["llama.context_length"]
    write_json(
        target / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": tokens[bos_id],
            "eos_token": tokens[eos_id],
            "model_max_length": context,
            "clean_up_tokenization_spaces": False,
            "chat_template": meta.get("tokenizer.chat_template"),
        },
    )
    write_json(target / "generation_config.json", {"bos_token_id": bos_id, "eos_token_id": eos_id})
    write_json(
        target / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": meta["llama.embedding_length"],
            "intermediate_size": meta["llama.feed_forward_length"],
            "num_hidden_layers": meta["llama.block_count"],
            "num_attention_heads": meta["llama.attention.head_count"],
            "num_key_value_heads": meta["llama.attention.head_count_kv"],
            "vocab_size": len(tokens),
            "max_position_embeddings": context,
            "rope_theta": float(meta["llama.rope.freq_base"]),
            "rms_norm_eps": float(meta["llama.attention.layer_norm_rms_epsilon"]),
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": "lm_head.weight" not in tensors,
            "bos_token_id": bos_id,
            "eos_token_id": eos_id,
            "torch_dtype": dtype,
        },
    )
    with source.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    write_json(target / "origin.json", {"file": source.name, "sha256": digest, "dtype": dtype})
    return len(tensors)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Expand a llama GGUF into a safetensors folder.")
    parser.add_argument("source", type=Path, help="the .gguf file")
    parser.add_argument("target", type=Path, help="folder to write")
    parser.add_argument("--dtype", choices=("float32", "float16"), default="float32", help="float32 rounds nothing")
    arguments = parser.parse_args()
    try:
        count = convert(arguments.source, arguments.target, arguments.dtype)
    except (OSError, KeyError, ValueError) as error:
        print(f"error: cannot convert {arguments.source}: {error}", file=sys.stderr)
        return 2
    print(f"{count} tensors written to {arguments.target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
