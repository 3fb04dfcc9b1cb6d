"""The pictures of `rates.rs`, and the rates of Pillow and torchvision for them, on one thread.

    python rates.py make FOLDER        writes FOLDER/small and FOLDER/large, 45 MB
    python rates.py measure FOLDER     needs torchvision

Pictures are 1/f noise in correlated channels with edges: at quality 90 they take the 2 to 4 bits a
pixel of photographs. `draft` lets libjpeg decode at 1/2, 1/4 or 1/8 of the size.
"""

import io
import pathlib
import sys
import time

import numpy as np
from PIL import Image

ROUNDS, SIDE = 5, 224


def photograph(rng, width, height):
    rows, columns = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :]
    frequency = np.hypot(rows, columns)
    frequency[0, 0] = 1

    def noise(power):
        shape = (height, width // 2 + 1)
        spectrum = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
        plane = np.fft.irfft2(spectrum / frequency**power, s=(height, width))
        return (plane - plane.mean()) / plane.std()

    luma = 128 + 45 * noise(1.25) + 25 * np.sign(noise(1.8))
    planes = np.stack([luma + 14 * noise(1.6) for _ in range(3)], -1)
    grain = 1.5 * rng.standard_normal((height, width, 1))
    return Image.fromarray(np.clip(planes + grain, 0, 255).astype(np.uint8))


def make(folder):
    rng = np.random.default_rng(1)
    for name, count, width, height in (("small", 200, 500, 375), ("large", 8, 4000, 3000)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for index in range(count):
            photograph(rng, width, height).save(folder / name / f"{index:03}.jpg", quality=90)


def pillow(data, draft):
    image = Image.open(io.BytesIO(data))
    if draft:
        image.draft("RGB", (SIDE, SIDE))
    image = image.convert("RGB")
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=box))


def measure(folder):
    import torch
    from torchvision.io import decode_jpeg
    from torchvision.transforms.v2 import functional

    def torchvision(data):
        image = decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        image = functional.center_crop(image, [min(image.shape[-2:])] * 2)
        return functional.resize(image, [SIDE, SIDE], antialias=True)

    torch.set_num_threads(1)
    files = [path.read_bytes() for path in sorted(folder.iterdir())]
    kinds = {
        "Pillow": lambda data: pillow(data, draft=False),
        "Pillow with draft": lambda data: pillow(data, draft=True),
        "torchvision": torchvision,
    }
    best = dict.fromkeys(kinds, float("inf"))
    for _ in range(ROUNDS):
        for name, decode in kinds.items():
            start = time.process_time()
            for data in files:
                decode(data)
            best[name] = min(best[name], time.process_time() - start)
    for name, seconds in best.items():
        print(f"{name}: {len(files) / seconds:.1f} pictures per CPU-second")


if __name__ == "__main__":
    verb, folder = sys.argv[1:]
    {"make": make, "measure": measure}[verb](pathlib.Path(folder))
