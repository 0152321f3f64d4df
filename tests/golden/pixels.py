"""Shared by the golden scripts of images: pixels of noise and hashes of pixels, as tests/text/images/pixels.h computes them."""
import numpy as np


def noise(width, height, seed):
    """An array (height, width, 3) of uint8."""
    with np.errstate(over="ignore"):
        x = (np.arange(1, width * height * 3 + 1, dtype=np.uint64) + (np.uint64(seed) << np.uint64(32))) * np.uint64(0x9e3779b97f4a7c15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
    return (x >> np.uint64(56)).astype(np.uint8).reshape(height, width, 3)


def hash_of(array):
    """The sum of (byte[i] + 1) * k^(i + 1) modulo 2^64, in hexadecimal digits."""
    data = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8).astype(np.uint64)
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(len(data), 0x9e3779b97f4a7c15, np.uint64))
        return format(int(((data + np.uint64(1)) * powers).sum(dtype=np.uint64)), "016x")
