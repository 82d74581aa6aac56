"""One peer of compare_generation.py, kept alive: a line on standard input is one measurement, answered in JSON.

    generation_worker.py torch FOLDER float32|bfloat16 eager|compile THREADS PROMPT TOKENS
    generation_worker.py ctranslate2 FOLDER float32|int8 - THREADS PROMPT TOKENS
"""

import json
import sys
import time
from statistics import median

SEED_TOKENS = [(i * 7919) % 256 for i in range(4096)]


def torch_peer(folder, dtype, mode, threads, prompt, tokens):
    import torch
    import transformers

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    step = torch.compile(model.forward, mode="default") if mode == "compile" else model.forward
    start = torch.tensor([SEED_TOKENS[:prompt]])
    length = prompt + tokens

    def cache():
        if mode == "compile":  # of fixed shapes: compiled once
            return transformers.StaticCache(config=model.config, max_cache_len=length)
        return transformers.DynamicCache(config=model.config)

    def run():
        past, passes, written = cache(), [], []
        begin = time.perf_counter()
        out = model.forward(input_ids=start, past_key_values=past, use_cache=True, logits_to_keep=1,
                            cache_position=torch.arange(prompt))
        token = out.logits[:, -1:].argmax(-1)
        prompt_s = time.perf_counter() - begin
        for i in range(tokens):
            written.append(int(token))
            begin = time.perf_counter()
            out = step(input_ids=token, past_key_values=past, use_cache=True,
                       cache_position=torch.tensor([prompt + i]))
            token = out.logits[:, -1:].argmax(-1)
            passes.append(time.perf_counter() - begin)
        return {"tokens_s": 1 / median(passes), "prompt_tokens_s": prompt / prompt_s, "tokens": written}

    return run, {"torch": torch.__version__, "transformers": transformers.__version__}


def ctranslate2_peer(folder, kind, _, threads, prompt, tokens):
    import ctranslate2

    generator = ctranslate2.Generator(folder, device="cpu", compute_type=kind, inter_threads=1, intra_threads=threads)
    vocabulary = json.load(open(f"{folder}/vocabulary.json"))
    start = [vocabulary[t] for t in SEED_TOKENS[:prompt]]

    def timed(count):
        begin = time.perf_counter()
        result = generator.generate_batch([start], max_length=count, min_length=count, sampling_topk=1, end_token=[],
                                          include_prompt_in_result=False)
        return time.perf_counter() - begin, result[0].sequences_ids[0]

    def run():  # prompt and first token are in both
        first, _ = timed(1)
        whole, written = timed(tokens + 1)
        return {"tokens_s": tokens / (whole - first), "prompt_tokens_s": prompt / first, "tokens": written}

    return run, {"ctranslate2": ctranslate2.__version__}


def main():
    peer, folder, kind, mode, *numbers = sys.argv[1:]
    make = {"torch": torch_peer, "ctranslate2": ctranslate2_peer}[peer]
    run, about = make(folder, kind, mode, *map(int, numbers))
    print(json.dumps(about), flush=True)
    for _ in sys.stdin:
        print(json.dumps(run()), flush=True)


if __name__ == "__main__":
    main()
