"""Isobath's training step beside PyTorch's, in turns, so that a busy machine slows both.

    bench/peers/run                                              width 384, 6 blocks, 4 x 1024 tokens, vocabulary 257
    bench/peers/run --context 256 --batch 16
    bench/peers/run --hidden-size 768 --num-hidden-layers 12 --num-attention-heads 12 --batch 2 --json
    bench/peers/run --check                                      only: is it the same model?

First both programs must have the same loss on checkpoints that Isobath writes (torch_check.py). Then, in each round,
every program makes two steps of each model, of which the second is timed. PyTorch's processes stay alive for the whole
run, one per mode and model; Isobath starts anew in each turn.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import peer_report

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SHAPE = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6, "context": 1024, "batch": 4,
         "vocab_size": 257}

# Without these glibc gives large blocks back to the system after each operation and fetches them again page by page.
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 33),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "MALLOC_TOP_PAD_": str(1 << 28),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


def parse():
    parser = argparse.ArgumentParser(prog="bench/peers/run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in SHAPE.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=value, metavar="N", help=f"{value}")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="timed steps of each, 5")
    parser.add_argument("--models", choices=("both", "dense", "mod"), default="both")
    parser.add_argument("--modes", default="eager,compile", help="of PyTorch, with commas: eager, compile")
    parser.add_argument("--bf16", action="store_true", help="each mode also with autocast to bfloat16")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--isobath", default=str(ROOT / "build/release/isobath"), metavar="PATH", help="the program")
    parser.add_argument("--check", action="store_true", help="only compare losses on Isobath's checkpoints")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    arguments = parser.parse_args()
    modes = arguments.modes.split(",")
    if arguments.rounds < 1 or not modes or set(modes) - {"eager", "compile"}:
        parser.error("--rounds is at least 1, and --modes names eager, compile or both")
    if arguments.hidden_size % (2 * arguments.num_attention_heads):
        parser.error("--hidden-size is a multiple of twice --num-attention-heads: rotary positions turn pairs")
    if not os.access(arguments.isobath, os.X_OK):
        parser.error(f"there is no program {arguments.isobath}; `make` builds it, --isobath names another")
    arguments.modes = modes + [mode + "-bf16" for mode in modes if arguments.bf16]
    arguments.models = ("dense", "mod") if arguments.models == "both" else (arguments.models,)
    return arguments


def shape_flags(arguments):
    return [word for name in SHAPE for word in ("--" + name.replace("_", "-"), str(getattr(arguments, name)))]


def environment(threads):
    """What is set for other programs must not slow one of these: bound threads, other kernels.

    How long waiting threads spin before they sleep decides more than anything else on a busy machine (on one of ours a
    factor of four). Both programs get what Isobath chooses for itself; GOMP_SPINCOUNT=N bench/peers/run tries another.
    """
    foreign = ("OMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "TORCH", "MALLOC_", "GLIBC_TUNABLES")
    env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {"GOMP_SPINCOUNT": "1000"} | env | {"OMP_NUM_THREADS": str(threads)}


class Torch:
    """One PyTorch process, and what it answered."""

    def __init__(self, arguments, model, mode):
        build = ROOT / "build/peers"
        env = environment(arguments.threads) | MALLOC | {
            "TORCHINDUCTOR_CACHE_DIR": str(build / "inductor"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # in the process itself: no others that stay alive beside the timing
        }
        mode, bf16 = mode.removesuffix("-bf16"), mode.endswith("-bf16")
        command = [sys.executable, str(HERE / "torch_train.py"), "--model", model, "--mode", mode,
                   "--threads", str(arguments.threads), *shape_flags(arguments), *(["--bf16"] if bf16 else [])]
        self.log = open(build / f"{model}-{mode}{'-bf16' if bf16 else ''}.log", "w+")
        self.process = subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log)
        self.about = self.answer()
        self.ask("step")  # compiles, and touches memory for the first time

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            sys.exit(f"PyTorch ended: {self.log.read()[-2000:]}")
        return json.loads(line)

    def ask(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.answer()

    def step_ms(self):
        self.ask("step")
        return self.ask("step")["step_ms"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Isobath:
    """`isobath bench train`, started for each step: an untimed one comes first there too."""

    def __init__(self, arguments, model):
        self.command = [arguments.isobath, "bench", "train", "--json", "--pairs", "1", "--models", model, "--threads",
                        str(arguments.threads), *shape_flags(arguments)]
        self.env, self.model, self.memory = environment(arguments.threads), model, {}

    def step_ms(self):
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(self.command, env=self.env, text=True, stdout=subprocess.PIPE, stderr=log)
            with process.stdout:
                out = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)  # the one way to learn the peak of this child alone
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != 0:
                log.seek(0)
                sys.exit(f"{' '.join(self.command)} failed: {log.read().strip()}")
        self.found = json.loads(out)
        result = self.found[self.model]
        self.flops = result["utilisation_flops"]
        self.memory = {"anonymous_bytes": result["anonymous_bytes"], "peak_rss_bytes": usage.ru_maxrss * 1024}
        return result["step_ms"][-1]

    def peak_gflop_s(self):
        return self.found["machine"]["fma_gflop_s"]


def measure(arguments):
    """{model: {program: {step_ms: [...], memory}}}, and the machine's peak in each round."""

    def say(text):
        print(text, file=sys.stderr, flush=True)

    runners, peaks, about = {}, [], {}
    for model in arguments.models:
        runners[model, "isobath"] = Isobath(arguments, model)
        for mode in arguments.modes:
            say(f"starting PyTorch {mode}, {model}")
            runners[model, mode] = Torch(arguments, model, mode)
            about = runners[model, mode].about
    times = {key: [] for key in runners}
    for turn in range(arguments.rounds):
        order = list(runners) if turn % 2 == 0 else list(reversed(runners))
        for key in order:
            times[key].append(runners[key].step_ms())
        peaks.append(max(runners[model, "isobath"].peak_gflop_s() for model in arguments.models))
        say(f"round {turn + 1} of {arguments.rounds}")
    result = {}
    for (model, name), runner in runners.items():
        if name != "isobath":
            runner.memory = runner.ask("memory")
            runner.close()
        result.setdefault(model, {})[name] = {"step_ms": times[model, name], **runner.memory}
    flops = {model: runners[model, "isobath"].flops for model in arguments.models}
    machine = runners[arguments.models[0], "isobath"].found["machine"]
    return {"models": result, "flops": flops, "peak_gflop_s": peaks, "machine": machine, "torch": about}


def main():
    arguments = parse()
    check = [sys.executable, str(HERE / "torch_check.py"), arguments.isobath]
    same = subprocess.run(check, env=environment(arguments.threads), stdout=sys.stderr).returncode == 0
    if arguments.check or not same:
        return 0 if same else 1
    version = subprocess.check_output([arguments.isobath, "--version"], text=True).strip()
    found = measure(arguments)
    record = {"isobath": version, "shape": {name: getattr(arguments, name) for name in SHAPE}, **found}
    record["summary"] = peer_report.summary(record)
    print(json.dumps(record, indent=2) if arguments.json else peer_report.text(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
