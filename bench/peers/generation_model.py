"""The checkpoint that engines are compared on: a dense Llama of 109.5 M weights (width 768, 12 blocks, 12 heads, MLP 2048,
32,000 tied tokens), as Isobath writes it after one step of training. What the weights are changes no speed."""

import json
import shutil
import subprocess
from pathlib import Path

VOCABULARY = 32000
SHAPE = {"hidden-size": 768, "num-hidden-layers": 12, "num-attention-heads": 12, "intermediate-size": 2048,
         "max-position-embeddings": 2048}


def byte_letters():
    """GPT-2's names of the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {b: chr(b) for b in plain}
    for i, b in enumerate(b for b in range(256) if b not in names):
        names[b] = chr(256 + i)
    return [names[b] for b in range(256)]


def tokenizer():
    """Byte-level BPE whose merges are pairs of bytes: other programs want a tokenizer of the model's size."""
    letters = byte_letters()
    end = "<|endoftext|>"
    pairs = [(a, b) for a in letters for b in letters][: VOCABULARY - 257]
    vocabulary = {word: i for i, word in enumerate([*letters, *(a + b for a, b in pairs), end])}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = {"id": VOCABULARY - 1, "content": end, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [added], "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "vocab": vocabulary,
                      "merges": [f"{a} {b}" for a, b in pairs]}}


def write(isobath, folder: Path, env):
    """Nothing where it is there already."""
    if (folder / "model.safetensors").exists():
        return
    work = folder.with_name(folder.name + ".train")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (work / "text.txt").write_text("".join(f"line {i} of a text that only has to be there\n" for i in range(2000)))
    shape = [word for name, value in SHAPE.items() for word in (f"--{name}", str(value))]
    subprocess.run([isobath, "train", "--path", work / "text.txt", "--tokenizer", work, "--topology", "dense",
                    "--tie-word-embeddings", *shape, "--context", "32", "--batch", "1", "--steps", "1", "--peak", "100",
                    "--out", work / "run", "--quiet"], check=True, env=env)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        shutil.copy(work / "run/latest" / name, folder / name)
    shutil.rmtree(work)
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>",
         "unk_token": "<|endoftext|>"}))
