"""A model folder loaded and run by Hugging Face transformers and by Isobath.

    tests/parity/run MODEL            a dense model or a dropless mixture of experts that Isobath wrote
    tests/parity/run mixtral          a small random Mixtral that transformers writes
                                      (makes its own environment; see there)

Compares next-token losses and greedy text of both programs on one passage. Exits 1 if they differ.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, MixtralConfig, MixtralForCausalLM

PASSAGE = "In the beginning God created the heaven and the earth. And the earth was without form, and void."


def isobath(program, *arguments):
    result = subprocess.run([program, *arguments], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"isobath {' '.join(arguments)}: {result.stderr.strip()}")
    return json.loads(result.stdout)


def write_mixtral(folder):
    """Of bytes, with scores far enough apart that rounding moves no choice."""
    torch.manual_seed(1)
    model = MixtralForCausalLM(MixtralConfig(vocab_size=257, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
                                             num_attention_heads=4, num_key_value_heads=2, num_local_experts=5,
                                             num_experts_per_tok=2, max_position_embeddings=256, rope_theta=1e4,
                                             initializer_range=0.15, bos_token_id=256, eos_token_id=256))
    model.save_pretrained(folder, safe_serialization=True)
    config = Path(folder) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"tokenizer": "bytes"}))


def compare(program, folder):
    model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32)
    model.eval()
    print(type(model).__name__)

    ours = isobath(program, "generate", folder, "--prompt", PASSAGE, "--temperature", "0", "-n", "48", "--ignore-eos",
                   "--json")["texts"][0]
    prompt = torch.tensor([ours["tokens"][: ours["prompt_tokens"]]])
    with torch.no_grad():
        theirs = prompt
        for _ in range(48):
            theirs = torch.cat([theirs, model(theirs).logits[:, -1:].argmax(-1)], dim=1)
        theirs = theirs[0].tolist()
        logits = model(prompt).logits[0, :-1].double()
    loss = torch.nn.functional.cross_entropy(logits, prompt[0, 1:]).item()

    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        # The evaluation splits off the last 5% of a text; "train" with one window is the passage itself.
        text.write(PASSAGE * 40)
        text.flush()
        length = str(ours["prompt_tokens"] - 1)  # a window of n tokens has n targets
        found = isobath(program, "eval", folder, "--path", text.name, "--split", "train", "--context", length,
                        "--windows", "1", "--json")["dense"]
    same = theirs == ours["tokens"]
    print(f"greedy tokens {'equal' if same else 'DIFFERENT'} ({len(theirs)})")
    print(f"loss here {found['loss']:.6f} over {found['targets']} targets, there {loss:.6f} over {len(logits)}")
    return 0 if same and abs(found["loss"] - loss) < 1e-4 else 1


def main(program, folder):
    if folder != "mixtral":
        return compare(program, folder)
    with tempfile.TemporaryDirectory() as made:
        write_mixtral(made)
        return compare(program, made)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
