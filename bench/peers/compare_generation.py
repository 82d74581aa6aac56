"""Tokens per second that Isobath and other engines write with the same weights, one sequence, in turns.

    bench/peers/generate                                     109.5 M weights, prompts of 64 tokens, then 128 are written
    bench/peers/generate --rounds 3 --tokens 32 --json

In each round every engine writes the same prompt's continuation once, and the order is turned around in the next.
A ratio is of speeds in the same round. Peers in fp32 must write the same text first.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

import compare
import generation_model
import peer_report

HERE, ROOT, BUILD = compare.HERE, compare.ROOT, compare.ROOT / "build/peers"


def parse():
    parser = argparse.ArgumentParser(prog="bench/peers/generate", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="5")
    parser.add_argument("--prompt", type=int, default=64, metavar="N", help="tokens of the prompt, 64")
    parser.add_argument("--tokens", type=int, default=128, metavar="N", help="tokens written, 128")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--modes", default="eager", help="of PyTorch, with commas: eager, compile (minutes to start)")
    parser.add_argument("--isobath", default=str(ROOT / "build/release/isobath"), metavar="PATH", help="the program")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    arguments = parser.parse_args()
    if not os.access(arguments.isobath, os.X_OK):
        parser.error(f"there is no program {arguments.isobath}; `make` builds it, --isobath names another")
    return arguments


class Worker:
    """A peer in a process of its own."""

    def __init__(self, a, peer, folder, kind, mode):
        env = compare.environment(a.threads) | compare.MALLOC | {"TORCHINDUCTOR_CACHE_DIR": str(BUILD / "inductor"),
                                                                 "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        self.log = open(BUILD / f"generate-{peer}-{kind}-{mode}.log", "w+")
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "generation_worker.py"), peer, str(folder), kind, mode, str(a.threads),
             str(a.prompt), str(a.tokens)],
            env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)
        self.about = self.answer()
        self.first = self.run()  # compiles, and touches memory for the first time

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise RuntimeError(self.log.read()[-1500:])
        return json.loads(line)

    def run(self):
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        return self.answer()


class Isobath:
    def __init__(self, a, folder, weights):
        self.command = [a.isobath, "bench", "generate", "--json", "--model", str(folder), "--batch", "1", "--weights",
                        weights, "--context", str(a.prompt + a.tokens), "--tokens", str(a.tokens), "--threads",
                        str(a.threads)]
        self.env, self.about = compare.environment(a.threads), {}

    def run(self):
        found = json.loads(subprocess.check_output(self.command, env=self.env, text=True, stderr=subprocess.DEVNULL))
        times, machine = found["batches"][0]["model"], found["machine"]
        return {"tokens_s": 1e3 / median(times["pass_ms"]), "prompt_tokens_s": times["prompt_tokens_per_s"],
                "read_gb_s": machine["read_gb_s"]}


def converted(folder, kind):
    """CTranslate2's form of the checkpoint."""
    to = BUILD / f"generation-ctranslate2-{kind}"
    if not (to / "model.bin").exists():
        shutil.rmtree(to, ignore_errors=True)
        subprocess.run([str(Path(sys.executable).parent / "ct2-transformers-converter"), "--model", str(folder),
                        "--output_dir", str(to), "--quantization", kind], check=True, stdout=sys.stderr)
    return to


def start(a, folder):
    """{name: engine}; those that cannot be had are told and left out."""
    makers = {f"Isobath {w}": lambda w=w: Isobath(a, folder, w) for w in ("fp32", "bf16", "int8")}
    for mode in filter(None, a.modes.split(",")):
        for kind in ("float32", "bfloat16"):
            makers[f"PyTorch {mode} {kind}"] = lambda m=mode, k=kind: Worker(a, "torch", folder, k, m)
    for kind in ("float32", "int8"):
        makers[f"CTranslate2 {kind}"] = lambda k=kind: Worker(a, "ctranslate2", converted(folder, k), k, "-")
    for kind in ("f32", "bf16", "q8_0"):
        makers[f"llama.cpp {kind}"] = lambda k=kind: Worker(a, "llama.cpp", folder, k, "-")
    engines = {}
    for name, make in makers.items():
        print(f"starting {name}", file=sys.stderr, flush=True)
        try:
            engines[name] = make()
        except (RuntimeError, subprocess.CalledProcessError, OSError) as error:
            reason = str(error).strip().rpartition("\n")[2]
            print(f"left out: {name}: {reason[-300:]}", file=sys.stderr, flush=True)
    return engines


def same_model(engines):
    """Whether the peers in fp32 write the same tokens, as far as random weights let them agree: the first 16. With rows
    in a wrong order a model can still write the same text, so the first token must have the same probability too."""
    firsts = {name: engine.first for name, engine in engines.items()
              if isinstance(engine, Worker) and own_twin(name) == "Isobath fp32"}
    for name, first in firsts.items():
        print(f"{name} writes {first['tokens'][:6]} ..., log-probability {first['score']:.4f}", file=sys.stderr)
    scores = [first["score"] for first in firsts.values()]
    texts = {tuple(first["tokens"][:16]) for first in firsts.values()}
    return len(texts) <= 1 and max(scores, default=0) - min(scores, default=0) < 0.01


def measure(a, engines):
    found = {name: [] for name in engines}
    for turn in range(a.rounds):
        order = list(engines) if turn % 2 == 0 else list(reversed(engines))
        for name in order:
            found[name].append(engines[name].run())
        print(f"round {turn + 1} of {a.rounds}", file=sys.stderr, flush=True)
    return found


NEAR = {"float32": "Isobath fp32", "f32": "Isobath fp32", "bfloat16": "Isobath bf16", "bf16": "Isobath bf16",
        "int8": "Isobath int8", "q8_0": "Isobath int8"}


def own_twin(name):
    """The format of ours that a peer's is compared with."""
    return next((ours for word, ours in NEAR.items() if name.lower().endswith(word)), "Isobath fp32")


def summary(found):
    result = {}
    for name, runs in found.items():
        line = {key: peer_report.spread([r[key] for r in runs if key in r]) for key in ("tokens_s", "prompt_tokens_s")
                if any(key in r for r in runs)}
        if not name.startswith("Isobath"):
            ours = found[own_twin(name)]
            line["ratio"] = {key: peer_report.spread([o[key] / r[key] for o, r in zip(ours, runs)]) for key in line}
            line["beside"] = own_twin(name)
        result[name] = line
    return result


def text(record):
    rows = [("", "tokens/s", "Isobath / this", "prompt tokens/s", "Isobath / this")]
    for name, line in record["summary"].items():
        cells = [name]
        for key in ("tokens_s", "prompt_tokens_s"):
            cells.append(peer_report.ranged(line[key], "{:.0f}") if key in line else "")
            ratio = line.get("ratio", {}).get(key)
            cells.append(peer_report.ranged(ratio, "{:.2f}") if ratio else "")
        rows.append(tuple(cells))
    about = ", ".join(f"{k} {v}" for k, v in record["versions"].items())
    return f"{about}; {record['threads']} threads, prompt of {record['prompt']}, {record['tokens']} written, " \
           f"{record['rounds']} rounds, median (least to most)\n{peer_report.table(rows)}"


def main():
    a = parse()
    folder = BUILD / "generation-model"
    BUILD.mkdir(parents=True, exist_ok=True)
    generation_model.write(a.isobath, folder, compare.environment(a.threads))
    engines = start(a, folder)
    versions = {"Isobath": subprocess.check_output([a.isobath, "--version"], text=True).split()[-1]}
    for engine in engines.values():
        versions |= engine.about
    if not same_model(engines):
        sys.exit("the peers in fp32 do not write the same text with the same probability: their models differ")
    found = measure(a, engines)
    record = {"versions": versions, "threads": a.threads, "prompt": a.prompt, "tokens": a.tokens, "rounds": a.rounds,
              "runs": found, "summary": summary(found)}
    print(json.dumps(record, indent=2) if a.json else text(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
