"""Renders the conversations of chat_cases.py with published chat templates, in the environment of Hugging Face
transformers and in ours, and compares every byte and every {% generation %} span.

    python tests/golden/published_templates.py RENDER_CHAT FOLDER [--show]

RENDER_CHAT is the program build/bin/render_chat, FOLDER holds templates (*.jinja). The templates belong to others, so
none is part of this project. Needs transformers."""
import glob
import hashlib
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from chat_cases import DATE, RECORDS, TOKENS, reference


def compare(program, paths, show):
    sources = {path: open(path, encoding="utf-8", newline="").read() for path in paths}
    requests = [{"template": source, "tokens": TOKENS, "record": json.dumps(record), "add_generation_prompt": prompt,
                 "date": DATE} for source in sources.values() for record, prompt in RECORDS]
    done = subprocess.run([program], input="".join(json.dumps(r) + "\n" for r in requests), capture_output=True,
                          text=True, check=True)
    ours = iter(json.loads(line) for line in done.stdout.split("\n") if line)
    counts = {"agree": 0, "differ": 0, "with masks": 0, "renderings": 0, "both refuse": 0}
    for path, source in sources.items():
        has_masks = "endgeneration" in source
        wrong = []
        refused = 0
        for number, (record, prompt) in enumerate(RECORDS):
            theirs, our = reference(source, record, prompt, has_masks), next(ours)
            refused += "error" in theirs and "error" in our
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
        digest = hashlib.sha256(source.encode()).hexdigest()[:12]
        if wrong:
            print(f"DIFFERS {os.path.basename(path)} {digest}: conversations {[number for number, _, _ in wrong]}")
        for number, theirs, our in wrong if show else []:
            print(f"  {number}\n    theirs {json.dumps(theirs, ensure_ascii=False)}\n    ours   {json.dumps(our, ensure_ascii=False)}")
    print(", ".join(f"{name}: {count}" for name, count in counts.items()))
    return counts["differ"]


if __name__ == "__main__":
    arguments = [a for a in sys.argv[1:] if a != "--show"]
    sys.exit(1 if compare(arguments[0], sorted(glob.glob(arguments[1] + "/*.jinja")), "--show" in sys.argv) else 0)
