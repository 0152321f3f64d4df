"""Trains a tokenizer on a text and encodes the text with Hugging Face's tokenizers (Rust), interleaved with
`bench --tokenizer`, which does the same work: documents of 64 KiB cut at line ends, Llama 3's pattern, 32,000 tokens. Prints
MB/s and the ratio of the medians over all rounds, and whether both find the same number of tokens.

    python bench/peers/rust_tokenizers.py TEXT [--rounds N] [--threads N] [--with tokenizer.json] [--bench build/bin/bench]"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import time

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
           r"\s+(?!\S)|\s+")
DOCUMENT_BYTES = 64 << 10


def documents(data):
    found, at = [], 0
    while at < len(data):
        end = data.find(b"\n", min(at + DOCUMENT_BYTES, len(data)))
        end = len(data) if end < 0 else end + 1
        found.append(data[at:end].decode(errors="replace"))
        at = end
    return found


def peer(path, threads, given):
    """Runs in a process of its own, since the number of threads is read once: prints WORK SECONDS lines."""
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
    with open(path, "rb") as file:
        texts = documents(file.read())
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    begin = time.perf_counter()
    made.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=32000, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    print("train", time.perf_counter() - begin)
    if given:
        made = Tokenizer.from_file(given)
    for _ in range(3):
        begin = time.perf_counter()
        encoded = made.encode_batch_fast(texts)
        print("encode", time.perf_counter() - begin)
    print("tokens", sum(len(e.ids) for e in encoded))


def run_peer(options, threads):
    command = [sys.executable, __file__, options.text, "--peer", str(threads)]
    if options.given:
        command += ["--with", options.given]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")
    times = {}
    for work, value in (line.split() for line in lines if line):
        times.setdefault(work, []).append(float(value))
    return {work: statistics.median(values) for work, values in times.items()}


def run_bench(options):
    command = [options.bench, "--tokenizer", options.text, "--threads", str(options.threads)]
    if options.given:
        command += ["--with", options.given]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    times = {(m[1], int(m[2])): float(m[3]) for m in re.finditer(r"^(train|encode) +(\d+) +([0-9.]+)", out, re.M)}
    return times, int(re.search(r"([\d,]+) token", out)[1].replace(",", ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--with", dest="given")
    parser.add_argument("--bench", default="build/bin/bench")
    parser.add_argument("--peer", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        peer(options.text, options.peer, options.given)
        return
    megabytes = os.path.getsize(options.text) * 1e-6
    ours, theirs = {}, {}
    for _ in range(options.rounds):
        times, tokens = run_bench(options)
        for key, seconds in times.items():
            ours.setdefault(key, []).append(seconds)
        for threads in sorted({threads for _, threads in times}):
            result = run_peer(options, threads)
            if result["tokens"] != tokens:
                print(f"the numbers of tokens differ: {tokens} here, {result['tokens']:.0f} there")
            for work in ("train", "encode"):
                theirs.setdefault((work, threads), []).append(result[work])
    print("work    threads  flatshard MB/s  tokenizers MB/s  ratio")
    for key in ours:
        a, b = statistics.median(ours[key]), statistics.median(theirs[key])
        print(f"{key[0]:8}{key[1]:7}{megabytes / a:16.1f}{megabytes / b:17.2f}{b / a:7.1f}")


main()
