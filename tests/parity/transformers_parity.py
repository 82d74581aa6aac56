"""A dense model folder written by Isobath, loaded and run by Hugging Face transformers.

    tests/parity/run MODEL            (makes its own environment; see there)

Compares next-token losses and greedy text of both programs on one passage. Exits 1 if they differ.
"""

import json
import subprocess
import sys
import tempfile

import torch
from transformers import LlamaForCausalLM

PASSAGE = "In the beginning God created the heaven and the earth. And the earth was without form, and void."


def isobath(program, *arguments):
    result = subprocess.run([program, *arguments], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"isobath {' '.join(arguments)}: {result.stderr.strip()}")
    return json.loads(result.stdout)


def main(program, folder):
    model = LlamaForCausalLM.from_pretrained(folder, torch_dtype=torch.float32)
    model.eval()

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


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
