"""One PyTorch process that makes a training step whenever it is asked for one.

    printf 'step\nstep\nmemory\n' | python torch_train.py --model mod --mode compile

Each line read is answered with a line of JSON: `step` with its time and loss, `memory` with what the process holds. The
first line printed says what runs here. compare.py starts these processes with the environment they need.
"""

import argparse
import contextlib
import json
import os
import sys
import time

import torch
from torch_model import Model, Shape, rotate_complex, rotate_real


def held_bytes(field):
    """RssAnon: memory of our own now. VmHWM: the most that was ever resident, code and libraries with it."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


def make_optimizer(model):
    """AdamW as in Isobath: decay on matrices, not on embedding, norms and router."""
    matrices, others = [], []
    for name, weight in model.named_parameters():
        plain = weight.dim() < 2 or name.startswith("embed") or "router" in name
        (others if plain else matrices).append(weight)
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), fused=True)


class Training:
    def __init__(self, shape, mode, bf16):
        torch.manual_seed(1)
        compiled = mode == "compile"
        # Complex numbers turn pairs fastest, but the compiler writes no code for them, and none are bf16.
        self.model = Model(shape, rotate_real if compiled or bf16 else rotate_complex)
        self.loss = torch.compile(self.model, dynamic=False) if compiled else self.model
        self.optimizer = make_optimizer(self.model)
        self.token = torch.randint(shape.vocab_size, (shape.batch, shape.context))
        self.target = torch.randint(shape.vocab_size, (shape.batch, shape.context))
        self.bf16 = bf16

    def step(self):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16) if self.bf16 else contextlib.nullcontext():
            loss, total = self.loss(self.token, self.target)
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return {"step_ms": (time.perf_counter() - start) * 1e3, "loss": loss.item()}


def parse():
    parser = argparse.ArgumentParser(description="Training steps on random tokens, asked for on standard input.")
    parser.add_argument("--model", choices=("dense", "mod"), default="dense")
    parser.add_argument("--mode", choices=("eager", "compile"), default="eager")
    parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    default = Shape()
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "context", "batch", "vocab_size"):
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=getattr(default, name))
    return parser.parse_args()


def main():
    arguments = vars(parse())
    torch.set_num_threads(arguments.pop("threads"))
    torch.set_flush_denormal(True)
    model, mode, bf16 = (arguments.pop(name) for name in ("model", "mode", "bf16"))
    before = held_bytes("RssAnon")
    training = Training(Shape(**arguments, routed=model == "mod"), mode, bf16)

    def answer(record):
        print(json.dumps(record), flush=True)

    answer({"torch": torch.__version__, "config": torch.__config__.show(), "threads": torch.get_num_threads()})
    for line in sys.stdin:
        word = line.strip()
        if word == "step":
            answer(training.step())
        elif word == "memory":
            answer({"anonymous_bytes": held_bytes("RssAnon") - before, "peak_rss_bytes": held_bytes("VmHWM")})
        else:
            sys.exit(f"torch_train.py: '{word}' is not a request; step and memory are")


if __name__ == "__main__":
    main()
