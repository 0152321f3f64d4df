"""Golden resizes: images of noise resized by Pillow, in resize.txt, one a line: size, new size, filter, hash of the pixels. Pillow must be 13: see text/images/resize.h.

    python tests/golden/resize.py FILE [COUNT [SEED]]     writes other random ones, 500 by default, and

    FLATSHARD_RESIZES=FILE build/bin/flatshard_tests resize     checks these
"""
import os
import random
import sys

from pixels import hash_of, noise

KEPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "resize.txt")
EDGES = [(1, 1, 7, 5), (7, 5, 1, 1), (1, 40, 1, 3), (33, 1, 90, 1), (20, 30, 20, 11), (20, 30, 9, 30), (16, 16, 16, 16), (300, 2, 2, 300)]


def write(path, cases):
    from PIL import Image

    filters = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC, "lanczos": Image.LANCZOS}
    with open(path, "w") as out:
        for seed, (width, height, new_width, new_height, name) in enumerate(cases):
            image = Image.fromarray(noise(width, height, seed)).resize((new_width, new_height), filters[name])
            print(width, height, new_width, new_height, name, hash_of(image), file=out)


def random_cases(dice, count, largest):
    side = lambda: round(largest ** dice.uniform(0, 1))
    return [(side(), side(), side(), side(), dice.choice(["bilinear", "bicubic", "lanczos"])) for _ in range(count)]


def main():
    edges = [(*sizes, name) for sizes in EDGES for name in ("bilinear", "bicubic", "lanczos")]
    write(KEPT, edges + random_cases(random.Random(1), 60, 200))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        count, seed = (int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((2, 500), (3, 2)))
        write(sys.argv[1], random_cases(random.Random(seed), count, 1500))
    else:
        main()
