"""What a checkpoint states about its architecture: GGUF metadata, or config.json and its neighbours.

Which key holds which fact is data (``data/architectures.toml``). A fact that is not stated stays None, except for two
that both formats define by a rule: as many key/value heads as heads, and a head as wide as its share of the hidden
size. Read :func:`read_gguf_facts` and :func:`read_config_facts`.

Does not do: guessing from sizes or names, or running code that comes with a model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from freehold.errors import CheckpointError
from freehold.models.bytesource import shown
from freehold.models.formats import RawTensor, load_facts
from freehold.models.gguf import GgufValue, Skipped

__all__ = ["CONFIG_FILES", "Facts", "read_config_facts", "read_gguf_facts"]

CONFIG_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
)
"""The files beside safetensors weights that state facts, in the order of :func:`read_config_facts`."""

_MAX_INT = 2**53  # a larger number is no size of anything


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a checkpoint states.

    Args:
        fields: Values by the field names of ``records.inventory.Architecture``.
        families: Architecture names that pick tables of their own, the most specific first.
        num_layers: Blocks that produce the output; None where it says nothing.
        num_draft_layers: Blocks after them that only draft tokens.
        is_tied: Whether the output head is said to be the embedding; None where nothing is said.
        is_generative: Whether it is a model that has an output head at all.
        notes: Oddities, one sentence each.
    """

    fields: Mapping[str, Any]
    families: tuple[str, ...]
    num_layers: int | None
    num_draft_layers: int = 0
    is_tied: bool | None = None
    is_generative: bool = True
    notes: tuple[str, ...] = field(default=())


def read_gguf_facts(metadata: Mapping[str, GgufValue], tensors: Iterable[RawTensor]) -> Facts:
    """What the metadata of a GGUF file states.

    Args:
        metadata: Metadata of the first shard.
        tensors: All tensors; the embedding's rows stand in where no vocabulary size is stated.
    """
    table = load_facts("architectures.toml")["gguf"]
    arch = metadata.get("general.architecture")
    name = arch if isinstance(arch, str) else None
    notes: list[str] = []

    def look_up(key: str) -> int | None:
        value = metadata.get(key.replace("{arch}", name or ""))
        if isinstance(value, tuple):
            numbers = [v for v in value if type(v) is int]
            if len(set(numbers)) > 1:
                notes.append(f"{shown(key.replace('{arch}.', ''))} differs between layers; the largest is given")
            return max(numbers, default=None)
        return _whole(value)

    fields = _fill(table["fields"], look_up)
    if fields["vocab_size"] is None:
        tokens = metadata.get(table["tokens"])
        fields["vocab_size"] = tokens.count if isinstance(tokens, Skipped) else _rows(tensors, table["embedding"])
    if fields["kv_lora_rank"] is None:
        fields["rope_head_dim"] = None  # only MLA caches the rotary part apart
    layers = _first(table["layers"], look_up)
    num_draft = min(_first(table["draft_layers"], look_up) or 0, layers or 0)
    template = metadata.get(table["chat_template"])
    fields |= {
        "name": name,
        "num_layers": None if layers is None else layers - num_draft,
        "eos_token_ids": tuple(dict.fromkeys(i for key in table["eos"] if (i := look_up(key)) is not None)),
        "chat_template_sha256": _sha256(template) if isinstance(template, str) else None,
    }
    _complete_heads(fields, stated=())
    return Facts(
        fields=fields,
        families=(name,) if name else (),
        num_layers=fields["num_layers"],
        num_draft_layers=num_draft,
        is_generative=name not in (None, "clip", "mmproj"),
        notes=tuple(notes),
    )


def read_config_facts(texts: Mapping[str, bytes], tensors: Iterable[RawTensor]) -> Facts:
    """What ``config.json`` and its neighbours state.

    Args:
        texts: Content of those of :data:`CONFIG_FILES` that exist, by name.
        tensors: All tensors; the embedding's rows stand in where no vocabulary size is stated.

    Raises:
        CheckpointError: One of them is not what its name says.
    """
    table = load_facts("architectures.toml")["config"]
    config, generation, tokenizer, _, template_file = (
        _parse(name, texts[name]) if name.endswith(".json") and name in texts else {} for name in CONFIG_FILES
    )
    inner: Mapping[str, Any] = next((config[key] for key in table["nested"] if isinstance(config.get(key), dict)), {})
    if isinstance(inner.get("text_config"), dict):
        inner = inner["text_config"]
    notes = [] if "config.json" in texts else ["there is no config.json, so the architecture is not known"]

    def find(key: str) -> int | None:
        counted = key.removeprefix("len(").removesuffix(")")
        for place in (inner, config):
            found = place.get(counted)
            value = _whole(len(found) if counted != key and isinstance(found, list) else found)
            if value is not None:
                return value
        return None

    def look_up(key: str) -> int | None:
        values = [find(part) for part in key.split(" + ")]
        return None if None in values else sum(value for value in values if value is not None)

    names = config.get("architectures")
    class_name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None
    kinds = (inner.get("model_type"), config.get("model_type"), class_name)
    families = tuple(dict.fromkeys(kind for kind in kinds if isinstance(kind, str)))
    own: Mapping[str, Any] = next((table["families"][family] for family in families if family in table["families"]), {})
    fields = _fill({**table["fields"], **own}, look_up)
    if fields["vocab_size"] is None:
        fields["vocab_size"] = _rows(tensors, table["embedding"])
    if inner.get(table["window_switch"], config.get(table["window_switch"])) is False:
        fields["sliding_window"] = None
    if fields["kv_lora_rank"] is None:
        fields["rope_head_dim"] = None  # only MLA caches the rotary part apart
    eos = _ids(generation.get("eos_token_id"))
    config_eos = _ids(inner.get("eos_token_id")) or _ids(config.get("eos_token_id"))
    if eos and config_eos and set(config_eos) - set(eos):
        notes.append(
            f"generation_config.json ends at {_listed(eos)}, config.json at {_listed(config_eos)}; the first is used"
        )
    layers = _first(table["layers"], look_up)
    tied = config.get(table["tied"], inner.get(table["tied"]))
    fields |= {
        "name": class_name or next(iter(families), None),
        "num_layers": layers,
        "eos_token_ids": eos or config_eos,
        "chat_template_sha256": _template_sha256(texts, tokenizer, template_file),
    }
    _complete_heads(fields, stated=own)
    return Facts(
        fields=fields,
        families=families,
        num_layers=layers,
        num_draft_layers=_first(table["draft_layers"], look_up) or 0,
        is_tied=tied if isinstance(tied, bool) else None,
        is_generative=class_name is not None and class_name.endswith(("ForCausalLM", "ForConditionalGeneration")),
        notes=tuple(notes),
    )


def _fill(keys_by_field: Mapping[str, Sequence[str]], look_up: Callable[[str], int | None]) -> dict[str, Any]:
    return {name: _first(keys, look_up) for name, keys in keys_by_field.items()}


def _first(keys: Sequence[str], look_up: Callable[[str], int | None]) -> int | None:
    return next((value for key in keys if (value := look_up(key)) is not None), None)


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= _MAX_INT else None


def _ids(value: object) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(dict.fromkeys(i for v in values if (i := _whole(v)) is not None))


def _listed(ids: Sequence[int]) -> str:
    return " or ".join(map(str, ids[:8]))


def _rows(tensors: Iterable[RawTensor], ends: Sequence[str]) -> int | None:
    for tensor in tensors:
        for end in ends:
            if (tensor.name == end or tensor.name.endswith(f".{end}")) and len(tensor.shape) == 2:
                return tensor.shape[0]
    return None


def _complete_heads(fields: dict[str, Any], *, stated: Container[str]) -> None:
    """Fill in what both formats define by a rule, unless a family does not follow it.

    With MLA the width of a head is not its share of the hidden size.
    """
    heads, hidden = fields["num_heads"], fields["hidden_size"]
    if fields["num_kv_heads"] is None and "num_kv_heads" not in stated:
        fields["num_kv_heads"] = heads
    if fields["head_dim"] is None and heads and hidden and hidden % heads == 0 and fields["kv_lora_rank"] is None:
        fields["head_dim"] = hidden // heads


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _template_sha256(
    texts: Mapping[str, bytes], tokenizer: Mapping[str, Any], template_file: Mapping[str, Any]
) -> str | None:
    """Hash of the chat template; a file of its own wins over the one in the tokenizer's configuration."""
    if "chat_template.jinja" in texts:
        return hashlib.sha256(texts["chat_template.jinja"]).hexdigest()
    for document in (template_file, tokenizer):
        template = document.get("chat_template")
        if isinstance(template, list):  # several by name
            default = [t for t in template if isinstance(t, dict) and t.get("name") == "default"]
            template = default[0].get("template") if default else None
        if isinstance(template, str):
            return _sha256(template)
    return None


def _parse(name: str, data: bytes) -> Mapping[str, Any]:
    try:
        document: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{name} is no JSON", why=shown(str(error)), fix="download the file again") from None
    if not isinstance(document, dict):
        raise CheckpointError(
            f"{name} holds no JSON object",
            why=f"it holds a {type(document).__name__}",
            fix="download the file again",
        )
    return document
