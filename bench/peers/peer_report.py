"""What compare.py found, as numbers and as text: ratios within a round, medians and ranges over the rounds."""

from statistics import median


def spread(values):
    return {"median": median(values), "least": min(values), "most": max(values)}


def one_model(record, model):
    """Per program: speed, share of the fp32 peak of its own round, and Isobath's speed over its own."""
    programs, flops = record["models"][model], record["flops"][model]
    tokens = record["shape"]["batch"] * record["shape"]["context"]
    ours = programs["isobath"]["step_ms"]
    lines = {}
    for name, program in programs.items():
        ms = program["step_ms"]
        lines[name] = {
            "step_ms": spread(ms),
            "tokens_s": spread([tokens / t * 1e3 for t in ms]),
            "peak_share": spread([flops / (t * 1e6) / peak for t, peak in zip(ms, record["peak_gflop_s"])]),
            "isobath_speed_ratio": spread([t / our for t, our in zip(ms, ours)]),
            "anonymous_bytes": program["anonymous_bytes"],
            "peak_rss_bytes": program["peak_rss_bytes"],
        }
    return lines


def summary(record):
    result = {model: one_model(record, model) for model in record["models"]}
    if len(result) == 2:
        dense, mod = record["models"]["dense"], record["models"]["mod"]
        result["mod_over_dense_time"] = {
            name: spread([m / d for m, d in zip(mod[name]["step_ms"], dense[name]["step_ms"])]) for name in dense}
        result["mod_over_dense_flops"] = record["flops"]["mod"] / record["flops"]["dense"]
    return result


def faster_mode(lines):
    """The fp32 mode of PyTorch that is faster beside Isobath in the same rounds."""
    modes = [name for name in lines if name in ("eager", "compile")]
    return min(modes, key=lambda name: lines[name]["isobath_speed_ratio"]["median"])


def ranged(values, form, scale=1.0):
    low, mid, high = (form.format(values[key] * scale) for key in ("least", "median", "most"))
    return f"{mid} ({low} to {high})"


def program_name(name):
    return "Isobath" if name == "isobath" else f"PyTorch {name}"


def model_name(model):
    return "MoD" if model == "mod" else model


def table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def libraries(config):
    """Of torch.__config__.show(): which products and kernels run."""
    wanted = ("Kernel Library", "MKL-DNN", "CPU capability")
    lines = (line.strip(" -") for line in config.splitlines())
    return "; ".join(line.split(" (Git")[0] for line in lines if any(word in line for word in wanted))


def text(record):
    shape, found, machine = record["shape"], record["summary"], record["machine"]
    peak = spread(record["peak_gflop_s"])
    lines = [
        f"{machine.get('cpu', 'unknown')}, {record['torch']['threads']} threads: {ranged(peak, '{:.0f}')} GFLOP/s fp32",
        f"{record['isobath']}; PyTorch {record['torch']['torch']} ({libraries(record['torch']['config'])})",
        f"width {shape['hidden_size']}, {shape['num_hidden_layers']} blocks, {shape['num_attention_heads']} heads, "
        f"{shape['batch']} x {shape['context']} tokens, vocabulary {shape['vocab_size']}; "
        f"{len(record['peak_gflop_s'])} rounds, median (least to most)",
    ]
    rows = [("", "step ms", "tokens/s", "% of peak", "Isobath / this", "memory grown", "peak resident")]
    for model in record["models"]:
        for name, line in found[model].items():
            rows.append((
                f"{model_name(model)}, {program_name(name)}",
                ranged(line["step_ms"], "{:.0f}"),
                ranged(line["tokens_s"], "{:.0f}"),
                ranged(line["peak_share"], "{:.1f}", 100),
                "" if name == "isobath" else ranged(line["isobath_speed_ratio"], "{:.2f}"),
                f"{line['anonymous_bytes'] / 1e6:.0f} MB",
                f"{line['peak_rss_bytes'] / 1e6:.0f} MB",
            ))
    lines.append(table(rows))
    for model in record["models"]:
        mode = faster_mode(found[model])
        ratio = ranged(found[model][mode]["isobath_speed_ratio"], "{:.2f}")
        lines.append(f"{model_name(model)}: Isobath has {ratio} times the speed of the faster PyTorch ({mode})")
    if "mod_over_dense_time" in found:
        lines.append(f"time MoD / dense (FLOPs, attention's causal half: {found['mod_over_dense_flops']:.3f}):")
        lines += [f"  {program_name(name)} {ranged(ratio, '{:.3f}')}"
                  for name, ratio in found["mod_over_dense_time"].items()]
    return "\n".join(lines)
