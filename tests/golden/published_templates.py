"""Renders the conversations of chat_cases.py with published chat templates, in the environment of Hugging Face
transformers and in ours, and compares every byte and every {% generation %} span.

    python tests/golden/published_templates.py RENDER_CHAT FOLDER [--show] [--write]

RENDER_CHAT is the program build/bin/render_chat, FOLDER holds templates (*.jinja). The templates belong to others, so
none is part of this project; --write puts hashes of them and of transformers' renderings into
published_templates.json, which tests/text/chat/chat_template_test.cpp compares with ours where the environment variable
FLATSHARD_TEMPLATES names the folder. Needs transformers."""
import glob
import hashlib
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from chat_cases import DATE, RECORDS, TOKENS, reference


def digest(texts):
    """Of all renderings; None is one that is refused."""
    return hashlib.sha256("".join("refused\0" if text is None else text + "\0" for text in texts).encode()).hexdigest()


def compare(program, paths, show, write):
    sources = {path: open(path, encoding="utf-8", newline="").read() for path in paths}
    requests = [{"template": source, "tokens": TOKENS, "record": json.dumps(record), "add_generation_prompt": prompt,
                 "date": DATE} for source in sources.values() for record, prompt in RECORDS]
    done = subprocess.run([program], input="".join(json.dumps(r) + "\n" for r in requests), capture_output=True,
                          text=True, check=True)
    ours = iter(json.loads(line) for line in done.stdout.split("\n") if line)
    counts = {"agree": 0, "differ": 0, "with masks": 0, "renderings": 0, "both refuse": 0}
    hashes = {}
    for path, source in sources.items():
        texts = []
        has_masks = "endgeneration" in source
        wrong = []
        refused = 0
        for number, (record, prompt) in enumerate(RECORDS):
            theirs, our = reference(source, record, prompt, has_masks), next(ours)
            refused += "error" in theirs and "error" in our
            texts.append(theirs.get("text"))
            merged = []
            for begin, end in theirs.get("generated", []):
                if begin < end:
                    if merged and merged[-1][1] == begin:
                        merged[-1][1] = end
                    else:
                        merged.append([begin, end])
            same = "error" in our if "error" in theirs else (theirs["text"], merged) == (our.get("text"), our.get("generated"))
            if not same:
                wrong.append((number, theirs, our))
        counts["renderings"] += len(RECORDS)
        counts["both refuse"] += refused
        counts["with masks"] += has_masks
        counts["differ" if wrong else "agree"] += 1
        template = hashlib.sha256(source.encode()).hexdigest()
        hashes[template] = {"name": os.path.basename(path), "renderings": digest(texts)}
        if wrong:
            print(f"DIFFERS {os.path.basename(path)} {template[:12]}: conversations {[number for number, _, _ in wrong]}")
        for number, theirs, our in wrong if show else []:
            print(f"  {number}\n    theirs {json.dumps(theirs, ensure_ascii=False)}\n    ours   {json.dumps(our, ensure_ascii=False)}")
    print(", ".join(f"{name}: {count}" for name, count in counts.items()))
    if write:
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "published_templates.json"), "w") as file:
            json.dump(hashes, file, indent=1)
            file.write("\n")
    return counts["differ"]


if __name__ == "__main__":
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    paths = sorted(glob.glob(arguments[1] + "/*.jinja"))
    sys.exit(1 if compare(arguments[0], paths, "--show" in sys.argv, "--write" in sys.argv) else 0)
