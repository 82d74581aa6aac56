"""Is the PyTorch model the one that Isobath trains? Checkpoints written by Isobath must have the same loss in both.

    bench/peers/run --check

Trains a tiny dense model and a tiny routed one for a few steps, loads their weights here and compares the loss of one
window of text. Exits 1 if they differ.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch_model import Model, Shape, rotate_complex, rotate_real

TEXT = "".join(f"Sounding {n}: {n * n % 97} fathoms, sand and shell, course {n * 7 % 360}.\n" for n in range(400))
CONTEXT = 96


def isobath(program, *arguments):
    result = subprocess.run([program, *arguments], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"isobath {' '.join(arguments)}: {result.stderr.strip()}")
    return result.stdout


def adjacent_pairs(weight, heads):
    """Rows of a q or k matrix: a head's halves (0..K/2, K/2..K) become pairs (0, K/2, 1, K/2 + 1, ...)."""
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def load(folder, rotate):
    config = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    same = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "rms_norm_eps", "rope_theta")
    shape = Shape(**{name: config[name] for name in same}, context=CONTEXT, batch=1,
                  routed="mixture_of_depths" in config)
    model = Model(shape, rotate)
    assert shape.intermediate_size == config["intermediate_size"]
    renamed = {
        "embed.weight": weights.pop("model.embed_tokens.weight"),
        "norm.weight": weights.pop("model.norm.weight"),
        "head.weight": weights.pop("lm_head.weight"),
        "angle": model.angle,
    }
    ours = {"input_layernorm": "norm1", "post_attention_layernorm": "norm2", "self_attn.o_proj": "o",
            "mlp.gate_proj": "gate", "mlp.up_proj": "up", "mlp.down_proj": "down"}
    for layer in range(shape.num_hidden_layers):
        theirs, here = f"model.layers.{layer}.", f"blocks.{layer}."
        if theirs + "router.weight" in weights:
            renamed[here + "router.weight"] = weights.pop(theirs + "router.weight").view(1, -1)
            here += "inner."
        q, k, v = (weights.pop(f"{theirs}self_attn.{name}_proj.weight") for name in "qkv")
        q, k = (adjacent_pairs(matrix, shape.num_attention_heads) for matrix in (q, k))
        renamed[here + "qkv.weight"] = torch.cat((q, k, v))
        for old, new in ours.items():
            renamed[f"{here}{new}.weight"] = weights.pop(f"{theirs}{old}.weight")
    assert not weights, f"weights without a place: {list(weights)}"
    model.load_state_dict(renamed)
    return model


def compare(program, folder, name, flags):
    text = folder / "text.txt"
    text.write_text(TEXT)
    run = folder / name
    isobath(program, "train", "--path", str(text), "--out", str(run), "--steps", "20", "--context", str(CONTEXT),
            "--batch", "2", "--hidden-size", "48", "--num-hidden-layers", "4", "--num-attention-heads", "3", "--quiet",
            "--peak", "1", *flags)
    found = json.loads(isobath(program, "eval", str(run), "--path", str(text), "--split", "train", "--context",
                               str(CONTEXT), "--windows", "1", "--by", "topk", "--json"))
    here = found["dense" if name == "dense" else "top_k"]["loss"]
    window = torch.tensor(list(TEXT.encode()[: CONTEXT + 1]))
    same = True
    for rotate in (rotate_complex, rotate_real):
        with torch.no_grad():
            there = load(run / "latest", rotate)(window[None, :-1], window[None, 1:])[0].item()
        same = same and abs(here - there) < 1e-5
    print(f"{name}: loss {here:.6f} in Isobath, {there:.6f} in PyTorch{'' if same else ': DIFFERENT MODELS'}")
    return same


def main(program):
    with tempfile.TemporaryDirectory() as folder:
        dense = compare(program, Path(folder), "dense", ("--topology", "dense"))
        mod = compare(program, Path(folder), "MoD", ("--topology", "joint"))
    return 0 if dense and mod else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
