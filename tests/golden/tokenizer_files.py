"""Small tokenizers of every kind, trained here on the text below, and what Hugging Face's tokenizers makes of some strings.

tokenizers/NAME/tokenizer.json (for gpt2_files: vocab.json and merges.txt) and tokenizers/expected.json: the text they are
trained on, the strings, and for each NAME and string the ids, the decoded text, and for some NAMEs the byte where each token
begins. Needs only the package tokenizers: python tests/golden/make.py tokenizer_files"""
import json
import os
import random

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

FOLDER = os.path.dirname(os.path.abspath(__file__))

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# A pattern of our own, for the regular-expression library.
OTHER = r"[\p{Lu}\p{Lt}]?[\p{Ll}\p{M}]+|[\p{Lu}]+(?![\p{Ll}])|\p{N}{1,2}| ?[^\s\w]+|\w|\s*\n|\s+(?=\S)|\s+"

CORPUS = """The trainer reads a token file, and each rank takes its lanes of the batch. A lane is a micro-batch of sequences.
Every unit of parameters is gathered before it is used and released afterwards: gather, compute, release.
  for step in range(steps):
      loss = model.forward(tokens)      # the loss of 1024 targets
      loss.backward()
      optimizer.step(lr=3e-4, betas=(0.9, 0.95))
What's the loss? It's 2.345 at step 1,000; we've seen that it'll fall, they're sure, I'd say. DON'T STOP: I'M HERE.
Die Größe der Wörter über alle Straßen; l'été à la forêt, où êtes-vous? ¿Dónde está el niño? El año 2026.
Слово за слово, и каждое слово снова слово. Ελληνικά γράμματα, γράμμα προς γράμμα.
你好，世界。世界你好。今天天气很好，我们去公园。こんにちは世界。カタカナとひらがな。안녕하세요 세계. 한국어 단어.
مرحبا بالعالم. नमस्ते दुनिया। สวัสดีชาวโลก 🙂🙂 🎉 👩‍👩‍👧 🇩🇪🇫🇷 ½ ⅔ Ⅷ ٣٤٥ ①②
def f(x):\n    return x+1\n\n\nclass A:\n\tdef g(self, y=0): return {"a": [1, 2, 3], 'b': y ** 2}
"""

# One string of every kind of text.
GOLDEN = [
    "Hello world! 1234567 It's  na\u00efve \u4f60\u597d \U0001f642\n\n  x=foo(bar);\t end",
    "  leading and trailing  ", "I'LL we've DON'T it\u2019s", "a\n\n\n \t\r\n  b", "cafe\u0301 \u00e9",
    "12 345678 \u0663\u0664\u0665 \u00bd \u2167 3.14", "a\u00a0b\u3000c\u2003 d\u0085e\ufefff",
    "\U0001f999\u0000\u007f\u0080", "def f(x):\n    return x+1\n",
]

# Added tokens, and what stands next to them.
ADDED = [
    "", " ", "<s>", "<s> a</s>b <unk>c", "<s><s></s> </s>", "a <left> b", "a   <left>b<left>", "a<right>   b <right>\n\nc",
    "<both> <both>  <both>x", "   <both>   ", "<word> a<word> <word>b (<word>) \u00e9<word> <word>", "<Normal>e\u0301",
    "<NORMAL> <normal>", "<|im_start|>user\nhi<|im_end|>\n<think>", "<|im_start|><|im_start", "<longer><long>er<longe",
    "\u2581a \u2581\u2581b\u2581", "<0x41><0x0A>", "\uff1cs\uff1e", "hello<s>  world</s>  ",
]

# Where Unicode is awkward.
TORTURE = [
    "A\u030a\u0327 A\u0327\u030a \u1e9b\u0323 \ufb01 \u2460 \u1100\u1161\u11a8 \uac01 \u0958 \u2126 \u212b",
    "\u0301 \u0301\u0301", "a\u0315\u0300\u05ae\u0062", "\u0344\u0374\u037e\u0387\u1fef\u2000", "\U0001d15e\U0001d160",
    "I'\u017f i'S 'LL'll'Ll 're've'RE \u2019s 'x ''s'", "\u0130 \u0131 \u1e9e \u03a3\u03c2 \u01c5", "\t\t a\t b \r\r\n \n\r x",
    "\u2028\u2029\u202f\u205f\u1680\u180e\u200b x\u00a0 \u00a0y", "   \n  \n\n   a  ", "a \u3000 b", "1\u0662\u0033\u0664 \u2155x12345",
    "\u0e01\u0e33 \u0915\u094d\u0937\u093f", "\u1e0b\u0323 q\u0307\u0323", "x_y __init__ a-b/c\\d 'quoted' \"q\"",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea\U0001f3fb", "\ufffd\ufffe\uffff\U0010ffff",
    "a" * 130 + "b" * 7, " " * 40 + "x" + "\n" * 9, "0" * 25, "\u4f60" * 45, "ab " * 50, "loss=" + "1.5e-3," * 12,
]


def scrambled():
    """Words, marks, spaces and controls in random order."""
    random.seed(17)
    pieces = CORPUS.split(" ") + ["\u0301", "\u0327", "\n", "\t", "\u00a0", "\x00", "\x1f", "'s", "'LL", "\u00bd", "\u0f71", "\U0001f642"]
    return ["".join(random.choice(pieces) + random.choice(["", "", " ", "  "]) for _ in range(12)) for _ in range(12)]


TEXTS = GOLDEN + ADDED + TORTURE + scrambled()


def trained(pre_tokenizer, vocab=420, special=("<s>", "</s>"), **more):
    made = Tokenizer(models.BPE(**more))
    made.pre_tokenizer = pre_tokenizer
    made.train_from_iterator(CORPUS.split("\n"), trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=list(special), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return made


def byte_level(pattern, **more):
    return trained(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), **more)


def gpt2():
    made = trained(pre_tokenizers.ByteLevel(add_prefix_space=False))
    made.decoder = decoders.ByteLevel()
    return made


def llama3():
    made = byte_level(LLAMA3)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 0)])])
    return made


def qwen2():
    made = byte_level(QWEN2)
    made.normalizer = normalizers.NFC()
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(t, normalized=False) for t in ("<|im_start|>", "<|im_end|>")])
    made.add_tokens([
        AddedToken("<think>", normalized=False), AddedToken("<left>", lstrip=True), AddedToken("<right>", rstrip=True),
        AddedToken("<both>", lstrip=True, rstrip=True, normalized=False), AddedToken("<word>", single_word=True),
        AddedToken("<Normal>e\u0301"), AddedToken("<long>"), AddedToken("<longer>")])
    return made


def deepseek():
    """Three splits in a row, and GPT-2's pattern behind a space in front of each piece."""
    made = trained(pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(OTHER), "isolated"), pre_tokenizers.Split(Regex("[\u4e00-\u9fff]+"), "merged_with_next"),
        pre_tokenizers.Split("-", "merged_with_previous"), pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=True)]))
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<word>", single_word=True, lstrip=True)])
    return made


def sentencepiece(vocab=330):
    """The vocabulary and merges of a model over characters, as converted from SentencePiece."""
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    fallback = ["<0x%02X>" % b for b in range(256)]
    # Metaspace with split, so that no merge spans words.
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.train_from_iterator(CORPUS.split("\n"), trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False, limit_alphabet=90))
    model = json.loads(made.to_str())["model"]
    return model["vocab"], [tuple(m) for m in model["merges"]], fallback


def llama2():
    vocab, merges, fallback = sentencepiece()
    for token in fallback:
        vocab[token] = len(vocab)
    vocab["\u2581\u2581"] = len(vocab)
    merges.append(("\u2581", "\u2581"))
    made = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                      decoders.Strip(" ", 1, 0)])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made.add_special_tokens([AddedToken(t, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    return made


def metaspace():
    """The newer layout, with a few bytes only, so that unknown characters are fused in between."""
    vocab, merges, fallback = sentencepiece()
    for token in fallback[:128]:
        vocab[token] = len(vocab)
    made = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    made.decoder = decoders.Metaspace(prepend_scheme="first")
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1), False, False)
    made.add_special_tokens([AddedToken(t, normalized=False, rstrip=t == "<s>") for t in ("<unk>", "<s>", "</s>")])
    return made


def words():
    """All the components that large models do not use, over characters; unknown ones are not fused."""
    vocab, merges, _ = sentencepiece(250)
    made = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", ignore_merges=True))
    made.normalizer = normalizers.Sequence([
        normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(), normalizers.Replace(Regex("\\s+"), " "),
        normalizers.Replace("loss", "cost")])
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(),
        pre_tokenizers.Punctuation("removed"), pre_tokenizers.Metaspace(prepend_scheme="always")])
    made.post_processor = processors.BertProcessing(("</s>", 2), ("<s>", 1))
    made.add_special_tokens([AddedToken("<Normal>e\u0301", normalized=True), AddedToken("<word>", single_word=True)])
    return made


def nfd():
    made = byte_level(GPT2, special=("<s>",), vocab=330)
    made.normalizer = normalizers.NFD()
    made.decoder = decoders.Sequence([decoders.ByteLevel()])
    return made


def nfkd():
    made = byte_level(r"\s+|[^\s]", special=("<s>",), vocab=290)
    made.normalizer = normalizers.NFKD()
    return made


MAKERS = dict(gpt2=gpt2, llama3=llama3, qwen2=qwen2, deepseek=deepseek, llama2=llama2, metaspace=metaspace, words=words, nfd=nfd,
              nfkd=nfkd)
WITH_BEGINS = ("gpt2", "llama3", "llama2")
STRING_MERGES = ("gpt2", "llama2", "nfd")
IGNORE_MERGES = ("llama3",)


def begins(text, offsets):
    return [len(text[:begin].encode()) for begin, _ in offsets]


def write(folder, made, name):
    content = json.loads(made.to_str())
    model = content["model"]
    if name in STRING_MERGES:
        model["merges"] = [" ".join(merge) for merge in model["merges"]]
    if name in IGNORE_MERGES:
        model["ignore_merges"] = True
        model["vocab"]["\u0120afterwards"] = len(model["vocab"])  # no merge makes it
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "tokenizer.json")
    with open(path, "w") as file:
        json.dump(content, file, ensure_ascii=False, separators=(",", ":"))
    return Tokenizer.from_file(path)


def main():
    root = os.path.join(FOLDER, "tokenizers")
    expected = {"corpus": CORPUS.split("\n"), "texts": TEXTS, "tokenizers": {}}
    for name, maker in MAKERS.items():
        made = write(os.path.join(root, name), maker(), name)
        encoded = [made.encode(text) for text in TEXTS]
        result = {"ids": [e.ids for e in encoded],
                  "decoded": [made.decode(e.ids, skip_special_tokens=False) for e in encoded]}
        if name in WITH_BEGINS:
            result["begins"] = [begins(text, e.offsets) for text, e in zip(TEXTS, encoded)]
        expected["tokenizers"][name] = result
    files = os.path.join(root, "gpt2_files")
    os.makedirs(files, exist_ok=True)
    gpt2().model.save(files)
    with open(os.path.join(root, "expected.json"), "w") as file:
        json.dump(expected, file, separators=(",", ":"))
        file.write("\n")
