"""The checkpoint of generation_model.py as a GGUF file, for llama.cpp: f32, bf16 or q8_0."""

import json
from pathlib import Path

TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
OF_BLOCK = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
            "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
            "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def name_of(name):
    """Llama's name of a tensor in GGUF's words: model.layers.3.mlp.up_proj.weight is blk.3.ffn_up.weight."""
    stem = name.removesuffix(".weight")
    if not stem.startswith("model.layers."):
        return TOP[stem] + ".weight"
    block, part = stem.removeprefix("model.layers.").split(".", 1)
    return f"blk.{block}.{OF_BLOCK[part]}.weight"


def pairs_side_by_side(weight, heads):
    """Rotary positions turn rows i and i + D/2 of a head together in Llama, rows 2i and 2i + 1 in GGUF. (H*D,C)"""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write(folder: Path, kind, to: Path):
    """Nothing where it is there already. The matrices are of that kind, the norms fp32, as in llama.cpp's own files.
    The tied output needs no tensor, and a model that is handed tokens needs no vocabulary."""
    import gguf
    from safetensors.numpy import load_file

    if to.exists():
        return
    config = json.loads((folder / "config.json").read_text())
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    part = to.with_name(to.name + ".part")
    file = gguf.GGUFWriter(part, "llama")
    file.add_file_type(gguf.LlamaFileType[{"f32": "ALL_F32"}.get(kind, "MOSTLY_" + kind.upper())])
    file.add_vocab_size(config["vocab_size"])
    file.add_context_length(config["max_position_embeddings"])
    file.add_embedding_length(config["hidden_size"])
    file.add_block_count(config["num_hidden_layers"])
    file.add_feed_forward_length(config["intermediate_size"])
    file.add_head_count(heads["q_proj"])
    file.add_head_count_kv(heads["k_proj"])
    file.add_rope_dimension_count(config["head_dim"])
    file.add_rope_freq_base(config["rope_theta"])
    file.add_layer_norm_rms_eps(config["rms_norm_eps"])
    file.add_tokenizer_model("none")
    for name, weight in load_file(folder / "model.safetensors").items():
        projection = name.split(".")[-2]
        if projection in heads:
            weight = pairs_side_by_side(weight, heads[projection])
        type_ = gguf.GGMLQuantizationType[kind.upper() if weight.ndim == 2 else "F32"]
        file.add_tensor(name_of(name), gguf.quantize(weight, type_), raw_dtype=type_)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    part.rename(to)
