"""Write a small Llama with random weights and its own tokenizer, from nothing but this machine.

What an engine spends on a prompt depends on the shape of the model, not on the values of its
weights, so a random model measures as well as a trained one and needs no download. Its answers
mean nothing, but they are determined: the same prompt gives the same tokens, which is what the
comparison of answers needs. Run with the interpreter of the engine's own venv (torch, safetensors
and tokenizers come from there).

    python make_model.py DIRECTORY [--layers 2 --hidden 512 ...]

Prints one JSON line: parameters, KV bytes per token, and the SHA-256 over the written files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import sysconfig
from dataclasses import asdict, dataclass
from pathlib import Path

DTYPE_BYTES = {"float32": 4, "bfloat16": 2}
SPECIAL_TOKENS = ("<unk>", "<s>", "</s>")
STAMP = "kvgate-model.json"


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes that set cost (layers, hidden, heads) and KV bytes (layers, kv_heads, dtype).

    float32, not bfloat16: processors without bfloat16 arithmetic are served faster, and restored
    answers equal recomputed ones to the last token, so that a difference means a fault. Eight query
    heads share one KV head, as in large models: with more KV bytes to a unit of compute, a model of
    this size is as fast to recompute as to restore, and a store's gain cannot be seen.
    """

    layers: int = 2
    hidden: int = 512
    heads: int = 8
    kv_heads: int = 1
    intermediate: int = 1536
    vocabulary: int = 8192
    context: int = 16384
    dtype: str = "float32"
    seed: int = 0

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def kv_bytes_per_token(self) -> int:
        """Key and value, for each layer and KV head: 2 x layers x kv_heads x head_dim x bytes."""
        return 2 * self.layers * self.kv_heads * self.head_dim * DTYPE_BYTES[self.dtype]


def refusal(shape: Shape) -> str | None:
    """Say in one line why no engine could load this shape, or None."""
    if min(shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.intermediate) < 1:
        return "layers, hidden, heads, kv-heads and intermediate must be at least 1"
    if shape.hidden % shape.heads:
        return f"hidden {shape.hidden} is no multiple of heads {shape.heads}"
    if shape.heads % shape.kv_heads:
        return f"heads {shape.heads} is no multiple of kv-heads {shape.kv_heads}"
    if shape.vocabulary < 512:
        return f"vocabulary {shape.vocabulary} is below 512: all bytes and merges must fit"
    return None


def write_tokenizer(directory: Path, shape: Shape) -> None:
    """Train a byte-level BPE on the interpreter's own standard library, which is always there."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    library = Path(sysconfig.get_paths()["stdlib"])
    texts = sorted(str(path) for path in library.glob("*.py"))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train(
        texts,
        trainers.BpeTrainer(
            vocab_size=shape.vocabulary,
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    unknown, begin, end = SPECIAL_TOKENS
    chat = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}[assistant]"
    write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": unknown,
            "bos_token": begin,
            "eos_token": end,
            "model_max_length": shape.context,
            "chat_template": chat,
        },
    )


def write_config(directory: Path, shape: Shape) -> None:
    begin_id, end_id = SPECIAL_TOKENS.index("<s>"), SPECIAL_TOKENS.index("</s>")
    write_json(
        directory / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": shape.hidden,
            "intermediate_size": shape.intermediate,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "head_dim": shape.head_dim,
            "vocab_size": shape.vocabulary,
            "max_position_embeddings": shape.context,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": False,
            "bos_token_id": begin_id,
            "eos_token_id": end_id,
            "torch_dtype": shape.dtype,
        },
    )
    write_json(
        directory / "generation_config.json", {"bos_token_id": begin_id, "eos_token_id": end_id}
    )


def write_weights(directory: Path, shape: Shape) -> int:
    """Write ``model.safetensors`` and return the number of parameters."""
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(shape.seed)
    dtype = getattr(torch, shape.dtype)

    def normal(rows: int, columns: int, deviation: float = 0.02) -> torch.Tensor:
        return (torch.randn(rows, columns, generator=generator) * deviation).to(dtype)

    def ones() -> torch.Tensor:
        return torch.ones(shape.hidden, dtype=dtype)

    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    # Embeddings stand out against the layers' additions, so that answers depend on the prompt
    # and do not all collapse onto one token.
    weights = {
        "model.embed_tokens.weight": normal(shape.vocabulary, shape.hidden, deviation=0.1),
        "model.norm.weight": ones(),
        "lm_head.weight": normal(shape.vocabulary, shape.hidden),
    }
    for layer in range(shape.layers):
        name = f"model.layers.{layer}."
        weights[name + "input_layernorm.weight"] = ones()
        weights[name + "self_attn.q_proj.weight"] = normal(queries, shape.hidden)
        weights[name + "self_attn.k_proj.weight"] = normal(keys, shape.hidden)
        weights[name + "self_attn.v_proj.weight"] = normal(keys, shape.hidden)
        weights[name + "self_attn.o_proj.weight"] = normal(shape.hidden, queries)
        weights[name + "post_attention_layernorm.weight"] = ones()
        weights[name + "mlp.gate_proj.weight"] = normal(shape.intermediate, shape.hidden)
        weights[name + "mlp.up_proj.weight"] = normal(shape.intermediate, shape.hidden)
        weights[name + "mlp.down_proj.weight"] = normal(shape.hidden, shape.intermediate)
    save_file(weights, str(directory / "model.safetensors"), metadata={"format": "pt"})
    return sum(tensor.numel() for tensor in weights.values())


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def digest(directory: Path) -> str:
    """SHA-256 over names and bytes of all files but the stamp: the model's identity in evidence."""
    total = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        if path.name != STAMP and path.is_file():
            total.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def arguments(argv: list[str]) -> tuple[Path, Shape]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directory", type=Path)
    standard = Shape()
    for field, value in asdict(standard).items():
        choices = sorted(DTYPE_BYTES) if field == "dtype" else None
        flag = "--" + field.replace("_", "-")
        parser.add_argument(flag, type=type(value), default=value, choices=choices)
    given = vars(parser.parse_args(argv))
    directory: Path = given.pop("directory")
    return directory, Shape(**given)


def main(argv: list[str]) -> int:
    directory, shape = arguments(argv)
    reason = refusal(shape)
    if reason is not None:
        print(f"make_model: {reason}", file=sys.stderr)
        return 2
    stamp = directory / STAMP
    wanted = asdict(shape)
    if stamp.is_file():
        known = json.loads(stamp.read_text(encoding="utf-8"))
        if known.get("shape") == wanted and known.get("sha256") == digest(directory):
            print(json.dumps(known, sort_keys=True))
            return 0
    directory.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    write_tokenizer(directory, shape)
    write_config(directory, shape)
    parameters = write_weights(directory, shape)
    made = {
        "shape": wanted,
        "parameters": parameters,
        "kv_bytes_per_token": shape.kv_bytes_per_token,
        "sha256": digest(directory),
    }
    write_json(stamp, made)
    print(json.dumps(made, sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
