"""Golden pictures in tests/golden/images: JPEG, PNG and WebP files, and in images.txt the size of each and the hashes of the pixels
that transformers makes of a path, without transparency, and of a picture, over white. The files of refused_files() are not in this list.

    python tests/golden/images.py FOLDER [COUNT [SEED]]     writes other random ones, 300 by default, and

    FLATSHARD_IMAGES=FOLDER build/bin/flatshard_tests image_file     checks these
"""
import io
import os
import random
import struct
import sys
import zlib

import numpy as np

from pixels import hash_of, noise

KEPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "images")


def smooth(width, height, seed):
    """A picture of a few colors that flow into each other, with some noise: noise alone compresses badly."""
    from PIL import Image

    few = Image.fromarray(noise(4, 4, seed)).resize((width, height), Image.BICUBIC)
    return Image.fromarray((np.asarray(few).astype(int) + noise(width, height, seed + 1) % 7).clip(0, 255).astype(np.uint8))


def exif(orientation, big=False):
    order, mark = (">", b"MM\0*") if big else ("<", b"II*\0")
    entries = [struct.pack(order + "HHII", 0x010F, 2, 4, 0x41424300), struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)]
    return b"Exif\0\0" + mark + struct.pack(order + "IH", 8, len(entries)) + b"".join(entries) + bytes(4)


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def packed(samples, bits):
    """Rows of samples (height, width, channels) as PNG stores them, each behind the byte of its filter: none."""
    if bits == 16:
        rows = [row.astype(">u2").tobytes() for row in samples]
    elif bits == 8:
        rows = [row.astype(np.uint8).tobytes() for row in samples]
    else:
        rows = []
        for row in samples:
            flat = [int(x) for x in row.reshape(-1)]
            flat += [0] * (-len(flat) % (8 // bits))
            rows.append(bytes(sum(x << (8 - bits * (i + 1)) for i, x in enumerate(flat[at:at + 8 // bits])) for at in range(0, len(flat), 8 // bits)))
    return b"".join(b"\0" + row for row in rows)


PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]  # x, y, steps of Adam7


def png(samples, bits, color, interlaced=False, before=(), after=()):
    """A PNG of samples (height, width, channels); color as in its header: 0 gray, 2 RGB, 3 palette, 4 gray and alpha, 6 RGBA."""
    height, width = samples.shape[:2]
    parts = [samples[y::dy, x::dx] for x, y, dx, dy in PASSES] if interlaced else [samples]
    data = b"".join(packed(part, bits) for part in parts if part.size)
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, int(interlaced))
    return b"".join([b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", header), *(chunk(*c) for c in before), chunk(b"IDAT", zlib.compress(data, 9)),
                     *(chunk(*c) for c in after), chunk(b"IEND", b"")])


def pixels_of(data, samples=None):
    """What load_image makes of the file, and what processors make of the picture that Pillow opens. Pillow clips 16-bit gray, which
    ours does not: then from the samples."""
    from PIL import Image, ImageOps
    from transformers.image_transforms import convert_to_rgb
    from transformers.image_utils import load_image

    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    if image.mode.startswith("I;16"):
        gray = np.repeat((samples >> 8).astype(np.uint8), 3, axis=2)
        return gray, gray
    return np.asarray(load_image(image)), convert_to_rgb(image, return_numpy=True)


def samples_of(bits, channels, width, height, seed, dice):
    """Noise of all levels; alpha often 0 or the largest."""
    high, low = noise(width, height, seed).astype(np.uint16), noise(width, height, seed + 1).astype(np.uint16)
    values = np.concatenate([(high << 8 | low), high[..., ::-1] << 8 | low], axis=2)[..., :channels] >> (16 - bits)
    if channels in (2, 4) and dice.random() < 0.5:
        values[..., -1] = np.where(high[..., 0] < 90, 0, np.where(high[..., 0] > 160, (1 << bits) - 1, values[..., -1]))
    return values


def random_png(dice, width, height, seed):
    color, bits = dice.choice([(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16), (3, 1), (3, 2), (3, 4), (3, 8), (4, 8), (4, 16), (6, 8), (6, 16)])
    samples = samples_of(bits, {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color], width, height, seed, dice)
    before, after = [], []
    if color == 3:
        before.append((b"PLTE", noise(1 << bits, 1, seed + 2).tobytes()))
        if dice.random() < 0.5:
            before.append((b"tRNS", noise(1 << bits, 1, seed + 3).tobytes()[:dice.randint(1, 1 << bits)]))
    elif color in (0, 2) and bits == 8 and dice.random() < 0.3:
        before.append((b"tRNS", samples[dice.randrange(height), dice.randrange(width)].astype(">u2").tobytes()))
    if dice.random() < 0.3:
        dice.choice([before, after]).append((b"eXIf", exif(dice.randint(0, 9), dice.random() < 0.5)[6:]))
    if color == 0 and bits == 16:
        before, after = [], []
    return png(samples, bits, color, dice.random() < 0.4, before, after), samples


def random_jpeg(dice, width, height, seed):
    image = smooth(width, height, seed)
    options = {"quality": dice.randint(1, 100), "subsampling": dice.randint(0, 2), "progressive": dice.random() < 0.4, "optimize": dice.random() < 0.3}
    if dice.random() < 0.2:
        image = image.convert("L")
    if dice.random() < 0.2:
        options["restart_marker_blocks"] = dice.randint(1, 5)
    if dice.random() < 0.4:
        options["exif"] = exif(dice.randint(0, 9), dice.random() < 0.5)
    elif dice.random() < 0.2:
        options["xmp"] = f'<x tiff:Orientation="{dice.randint(1, 8)}"/>'.encode()
    if image.mode == "RGB" and dice.random() < 0.1:
        options["keep_rgb"], options["subsampling"] = True, 0
    out = io.BytesIO()
    image.save(out, "JPEG", **options)
    return out.getvalue()


def random_webp(dice, width, height, seed):
    from PIL import Image

    image = smooth(width, height, seed)
    if dice.random() < 0.5:
        image = Image.fromarray(np.dstack([np.asarray(image), np.asarray(smooth(width, height, seed + 2))[..., 0]]))
    options = {"exif": exif(dice.randint(1, 8))} if dice.random() < 0.4 else {}
    out = io.BytesIO()
    image.save(out, "WEBP", lossless=dice.random() < 0.4, quality=dice.randint(1, 100), **options)
    return out.getvalue()


def write(folder, files):
    """Files: name, data and, of 16-bit gray, samples."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "images.txt"), "w") as out:
        for name, data, samples in files:
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)
            pixels, over_white = pixels_of(data, samples)
            print(name, pixels.shape[1], pixels.shape[0], hash_of(pixels), hash_of(over_white), file=out)


def random_files(count, seed, largest):
    dice = random.Random(seed)
    for i in range(count):
        width, height = (round(largest ** dice.uniform(0, 1)) for _ in range(2))
        kind = dice.choice(["png", "png", "jpeg", "jpeg", "webp"])
        if kind == "png":
            data, samples = random_png(dice, width, height, 10 * i)
        else:
            data, samples = {"jpeg": random_jpeg, "webp": random_webp}[kind](dice, width, height, 10 * i), None
        yield f"{i:03}.{kind}", data, samples


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def kept_files():
    from PIL import Image

    dice, image = random.Random(1), smooth(29, 19, 1)
    for color, name, depths in [(0, "gray", (1, 2, 4, 8, 16)), (2, "rgb", (8, 16)), (3, "palette", (1, 2, 4, 8)), (4, "gray_alpha", (8, 16)), (6, "rgba", (8, 16))]:
        for bits in depths:
            samples = samples_of(bits, {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color], 11, 9, bits, dice)
            palette = [(b"PLTE", noise(1 << bits, 1, 2).tobytes()), (b"tRNS", noise(1 << bits, 1, 3).tobytes()[:(1 << bits) - 1])] if color == 3 else []
            yield f"{name}_{bits}.png", png(samples, bits, color, before=palette), samples
            yield f"{name}_{bits}_interlaced.png", png(samples, bits, color, True, palette), samples
    gray, rgb = samples_of(8, 1, 7, 5, 4, dice), samples_of(8, 3, 7, 5, 5, dice)
    yield "gray_one_transparent.png", png(gray, 8, 0, before=[(b"tRNS", gray[2, 3].astype(">u2").tobytes())]), gray
    yield "rgb_one_transparent.png", png(rgb, 8, 2, before=[(b"tRNS", rgb[2, 3].astype(">u2").tobytes())]), rgb
    yield "turned.png", png(rgb, 8, 2, before=[(b"eXIf", exif(6)[6:])]), rgb
    yield "turned_at_the_end.png", png(rgb, 8, 2, after=[(b"eXIf", exif(5, True)[6:])]), rgb
    yield "one_frame.png", png(rgb, 8, 2, before=[(b"acTL", struct.pack(">II", 1, 0))]), rgb
    for orientation in range(1, 9):
        yield f"orientation_{orientation}.jpeg", saved(image, "JPEG", quality=60, exif=exif(orientation, orientation % 2 == 0)), None
    yield "xmp.jpeg", saved(image, "JPEG", xmp=b'<x tiff:Orientation="8"/>'), None
    for subsampling in range(3):
        yield f"subsampling_{subsampling}.jpeg", saved(image, "JPEG", subsampling=subsampling, quality=85), None
        yield f"subsampling_{subsampling}_progressive.jpeg", saved(image, "JPEG", subsampling=subsampling, quality=85, progressive=True), None
    yield "gray.jpeg", saved(image.convert("L"), "JPEG"), None
    yield "rgb.jpeg", saved(image, "JPEG", keep_rgb=True), None
    yield "restarts.jpeg", saved(image, "JPEG", restart_marker_blocks=1), None
    transparent = Image.fromarray(np.dstack([np.asarray(image), np.asarray(smooth(29, 19, 2))[..., 0]]))
    for name, picture in (("rgb", image), ("rgba", transparent)):
        yield f"{name}.webp", saved(picture, "WEBP", quality=70, exif=exif(7)), None
        yield f"{name}_lossless.webp", saved(picture, "WEBP", lossless=True), None


def refused_files():
    from PIL import Image

    image = smooth(12, 9, 1)
    frames = {"save_all": True, "append_images": [smooth(12, 9, 5)]}
    yield "cmyk.jpeg", saved(image.convert("CMYK"), "JPEG")
    yield "animated.png", saved(image, "PNG", **frames)
    yield "animated.webp", saved(image, "WEBP", **frames)
    yield "picture.gif", saved(image, "GIF")


def main():
    for name in os.listdir(KEPT) if os.path.isdir(KEPT) else []:
        os.remove(os.path.join(KEPT, name))
    write(KEPT, kept_files())
    for name, data in refused_files():
        with open(os.path.join(KEPT, name), "wb") as file:
            file.write(data)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        count, seed = (int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((2, 300), (3, 2)))
        write(sys.argv[1], random_files(count, seed, 700))
    else:
        main()
