"""One peer of compare_generation.py, kept alive: a line on standard input is one measurement, answered in JSON.
"score" is the log-probability of the first token after the prompt.

    generation_worker.py torch FOLDER float32|bfloat16 eager|compile THREADS PROMPT TOKENS
    generation_worker.py ctranslate2 FOLDER float32|int8 - THREADS PROMPT TOKENS
    generation_worker.py llama.cpp FOLDER f32|bf16|q8_0 - THREADS PROMPT TOKENS
"""

import json
import sys
import time
from pathlib import Path
from statistics import median

import generation_gguf

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
        score = float(out.logits[0, -1].float().log_softmax(-1).max())
        for i in range(tokens):
            written.append(int(token))
            begin = time.perf_counter()
            out = step(input_ids=token, past_key_values=past, use_cache=True,
                       cache_position=torch.tensor([prompt + i]))
            token = out.logits[:, -1:].argmax(-1)
            passes.append(time.perf_counter() - begin)
        return {"tokens_s": 1 / median(passes), "prompt_tokens_s": prompt / prompt_s, "tokens": written, "score": score}

    return run, {"torch": torch.__version__, "transformers": transformers.__version__}


def ctranslate2_peer(folder, kind, _, threads, prompt, tokens):
    import ctranslate2

    generator = ctranslate2.Generator(folder, device="cpu", compute_type=kind, inter_threads=1, intra_threads=threads)
    vocabulary = json.load(open(f"{folder}/vocabulary.json"))
    start = [vocabulary[t] for t in SEED_TOKENS[:prompt]]

    def timed(count):
        begin = time.perf_counter()
        result = generator.generate_batch([start], max_length=count, min_length=count, sampling_topk=1, end_token=[],
                                          include_prompt_in_result=False, return_scores=True)
        return time.perf_counter() - begin, result[0]

    def run():  # prompt and first token are in both
        first, short = timed(1)
        whole, long = timed(tokens + 1)
        return {"tokens_s": tokens / (whole - first), "prompt_tokens_s": prompt / first,
                "tokens": long.sequences_ids[0], "score": short.scores[0]}

    return run, {"ctranslate2": ctranslate2.__version__}


def llama_build(llama):
    """Its version, and the instructions and parts that it was compiled with."""
    info = llama.llama_print_system_info().decode()
    uses = [word.split()[-3] for word in info.split("|") if word.strip().endswith("= 1")]
    return f"{llama.llama_version().decode()} (llama-cpp-python {llama.__version__}; {' '.join(uses)})"


def llama_peer(folder, kind, _, threads, prompt, tokens):
    import llama_cpp as llama  # the bindings of the C functions: what they cost a pass is some microseconds
    import numpy

    file = Path(f"{folder}-{kind}.gguf")
    generation_gguf.write(Path(folder), kind, file)
    llama.llama_backend_init()
    model = llama.llama_model_load_from_file(bytes(file), llama.llama_model_default_params())
    wish = llama.llama_context_default_params()
    wish.n_ctx, wish.n_batch, wish.n_ubatch = prompt + tokens, prompt, prompt
    wish.n_threads = wish.n_threads_batch = threads
    if kind == "f32":  # keys and values too; otherwise they are fp16, and flash attention is on and faster
        wish.type_k = wish.type_v = llama.GGML_TYPE_F32
        wish.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama.llama_init_from_model(model, wish)
    vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))

    def logits_after(read):
        """Of the token after these, which follow what the cache holds."""
        held = (llama.llama_token * len(read))(*read)  # the batch only points at it
        if llama.llama_decode(context, llama.llama_batch_get_one(held, len(read))) != 0:
            raise RuntimeError("llama_decode failed")
        return numpy.ctypeslib.as_array(llama.llama_get_logits_ith(context, -1), (vocabulary,))

    def run():
        llama.llama_memory_clear(llama.llama_get_memory(context), False)
        passes, written = [], []
        begin = time.perf_counter()
        logits = logits_after(SEED_TOKENS[:prompt])
        token = int(logits.argmax())
        prompt_s = time.perf_counter() - begin
        score = -float(numpy.log(numpy.exp(logits - logits[token]).sum()))
        for _ in range(tokens):
            written.append(token)
            begin = time.perf_counter()
            token = int(logits_after([token]).argmax())
            passes.append(time.perf_counter() - begin)
        return {"tokens_s": 1 / median(passes), "prompt_tokens_s": prompt / prompt_s, "tokens": written, "score": score}

    return run, {"llama.cpp": llama_build(llama)}


def main():
    peer, folder, kind, mode, *numbers = sys.argv[1:]
    make = {"torch": torch_peer, "ctranslate2": ctranslate2_peer, "llama.cpp": llama_peer}[peer]
    run, about = make(folder, kind, mode, *map(int, numbers))
    print(json.dumps(about), flush=True)
    for _ in sys.stdin:
        print(json.dumps(run()), flush=True)


if __name__ == "__main__":
    main()
