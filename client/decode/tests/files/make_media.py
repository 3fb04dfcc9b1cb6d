"""Writes the pictures and sounds of these tests, and the values that Pillow and soundfile read.

    python -m venv venv && venv/bin/pip install pillow==13.0.0 soundfile==0.14.0 numpy
    venv/bin/python make_media.py   # also needs jpegtran

A picture `name.ext` has a `name.ppm` with `Image.open(name.ext).convert("RGB")`, unless that equals
`rgb.ppm`. A sound `name.ext` has a `name.f32` with `soundfile.read(name.ext)`: one float after
another, channel by channel. Crops of `rgb.png` are in `crop-*.ppm`; their boxes follow torchvision.
"""

import math
import pathlib
import struct
import subprocess
import zlib

import numpy as np
import soundfile
from PIL import Image

HERE = pathlib.Path(__file__).parent
WIDTH, HEIGHT = 37, 25
#: First column, first row and steps of each pass of an interlaced PNG.
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4)]
ADAM7 += [(0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def picture(seed: int = 1) -> Image.Image:
    """Gradients, an edge and noise: a small photograph."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    planes = [x * 5, y * 7, 200 - x * 2 - y * 2]
    pixels = np.stack(planes, -1) + 60 * ((x - 20) ** 2 + (y - 14) ** 2 < 90)[..., None]
    noise = rng.normal(0, 4, (HEIGHT, WIDTH, 1))
    return Image.fromarray(np.clip(pixels + noise, 0, 255).astype(np.uint8))


def expect(name: str) -> None:
    read = Image.open(HERE / name).convert("RGB")
    if name == "rgb.png" or read.tobytes() != picture().tobytes():
        read.save((HERE / name).with_suffix(".ppm"))


def save(image: Image.Image, name: str, **options) -> None:
    image.save(HERE / name, **options)
    expect(name)


def jpegs(rgb: Image.Image) -> None:
    for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
        name = "jpeg-" + subsampling.replace(":", "")
        save(rgb, name + ".jpg", quality=90, subsampling=subsampling)
    save(rgb, "jpeg-progressive.jpg", quality=90, progressive=True)
    save(rgb, "jpeg-restart.jpg", quality=90, restart_marker_blocks=1)
    save(rgb, "jpeg-rgb.jpg", quality=90, keep_rgb=True)
    save(rgb.convert("L"), "jpeg-gray.jpg", quality=90)
    save(rgb.convert("CMYK"), "jpeg-cmyk.jpg", quality=90)
    # Orientation 6 is "turn to the right", which neither Pillow nor Larder does.
    exif = Image.Exif()
    exif[0x0112] = 6
    save(rgb, "jpeg-turned.jpg", quality=90, exif=exif)
    ycck(rgb)
    scans("444")
    scans("420")


def scans(sampling: str) -> None:
    """Pillow writes no baseline JPEG with a scan for each channel. libjpeg-turbo's tool does."""
    script = HERE / "scans.txt"
    script.write_text("0; 1; 2;")
    wanted = ["-scans", script, "-outfile", HERE / f"jpeg-scans-{sampling}.jpg"]
    subprocess.run(["jpegtran", *wanted, HERE / f"jpeg-{sampling}.jpg"], check=True)
    script.unlink()


def ycck(rgb: Image.Image) -> None:
    """Pillow writes no YCCK: it gets the planes as CMYK, and the Adobe marker's last byte says 2."""
    planes = [*rgb.convert("YCbCr").split(), rgb.convert("L").point(lambda v: 128 + v // 2)]
    name = HERE / "jpeg-ycck.jpg"
    inverted = [plane.point(lambda v: 255 - v) for plane in planes]
    Image.merge("CMYK", inverted).save(name, quality=90)
    data = bytearray(name.read_bytes())
    data[data.index(b"Adobe") + 11] = 2
    name.write_bytes(data)
    expect(name.name)


def pngs(rgb: Image.Image) -> None:
    alpha = Image.linear_gradient("L").resize((WIDTH, HEIGHT))
    rgba = rgb.copy()
    rgba.putalpha(alpha)
    save(rgb, "rgb.png")
    save(rgba, "png-rgba.png")
    save(rgb.convert("L"), "png-gray.png")
    save(rgba.convert("LA"), "png-gray-alpha.png")
    palette = rgb.quantize(16)
    save(palette, "png-palette.png")
    save(palette, "png-palette-alpha.png", transparency=bytes(range(100, 116)))
    save(rgb, "png-color-key.png", transparency=rgb.getpixel((3, 3)))
    save(rgb.convert("1"), "png-bits.png")
    # Pillow makes white of most 16-bit gray. Its upper bytes are the picture.
    gray = np.asarray(rgb.convert("L"))
    Image.fromarray(gray.astype(np.uint16) * 257).save(HERE / "png-gray-16.png")
    Image.fromarray(gray).convert("RGB").save(HERE / "png-gray-16.ppm")
    # Pillow writes no colours of 16 bits and no interlaced files.
    wide = np.asarray(rgb).astype(np.uint16) * 257
    wide += np.arange(WIDTH, dtype=np.uint16)[:, None] * 5
    raw("png-16.png", 16, [wide.astype(">u2").tobytes()], 0)
    pixels = np.asarray(rgb)
    raw("png-interlaced.png", 8, [pixels[y::dy, x::dx].tobytes() for x, y, dx, dy in ADAM7], 1)


def raw(name: str, bits: int, passes: list[bytes], interlaced: int) -> None:
    """A PNG of RGB, without filters."""
    sizes = [(WIDTH, HEIGHT)]
    if interlaced:
        sizes = [(-(-(WIDTH - x) // dx), -(-(HEIGHT - y) // dy)) for x, y, dx, dy in ADAM7]
    rows = b""
    for (width, height), data in zip(sizes, passes, strict=True):
        row = width * 3 * bits // 8
        rows += b"".join(b"\0" + data[y * row : (y + 1) * row] for y in range(height))
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, bits, 2, 0, 0, interlaced)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    data = b"\x89PNG\r\n\x1a\n"
    for kind, body in chunks:
        data += struct.pack(">I", len(body)) + kind + body
        data += struct.pack(">I", zlib.crc32(kind + body))
    (HERE / name).write_bytes(data)
    expect(name)


def webps(rgb: Image.Image) -> None:
    rgba = rgb.copy()
    rgba.putalpha(Image.linear_gradient("L").resize((WIDTH, HEIGHT)))
    save(rgb, "webp-lossy.webp", quality=90)
    save(rgb, "webp-lossless.webp", lossless=True)
    save(rgba, "webp-alpha.webp", lossless=True, exact=True)
    save(rgba, "webp-lossy-alpha.webp", quality=90)
    save(rgb, "webp-frames.webp", lossless=True, save_all=True, append_images=[picture(2)])


def crops(rgb: Image.Image) -> None:
    """What torchvision makes of `rgb.png` for rows of 16 x 16, but for the random numbers."""

    def write(name: str, image: Image.Image) -> None:
        image.save(HERE / f"crop-{name}.ppm")

    def center(size: int, cut: int) -> Image.Image:
        width, height = int(size * WIDTH / HEIGHT), size
        left, top = round((width - cut) / 2), round((height - cut) / 2)
        resized = rgb.resize((width, height), Image.Resampling.BILINEAR)
        return resized.crop((left, top, left + cut, top + cut))

    write("stretch", rgb.resize((16, 16), Image.Resampling.BILINEAR))
    write("stretch-gray", rgb.convert("L").resize((16, 16), Image.Resampling.BILINEAR))
    write("larger", rgb.resize((50, 50), Image.Resampling.BILINEAR))
    write("center", center(16, 16))
    write("center-part", center(20, 16))
    for sample in range(4):
        flip, box = get_params(seed=7, source=1, number=2, sample=sample)
        image = rgb.crop(box).resize((16, 16), Image.Resampling.BILINEAR)
        if flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        write(f"random-{sample}", image)


def get_params(seed: int, source: int, number: int, sample: int):
    """torchvision's `RandomResizedCrop.get_params`, with the numbers of a draw."""
    words = lambda *values: np.array(values, dtype=np.uint64)
    bits = np.random.Philox(key=words(seed, 2), counter=words(0, source, number, sample))
    uniform = lambda low, high: low + (high - low) * ((int(bits.random_raw()) >> 11) / 2**53)
    at_most = lambda most: int(bits.random_raw()) * (most + 1) >> 64
    flip = int(bits.random_raw()) & 1
    for _ in range(10):
        area = WIDTH * HEIGHT * uniform(0.08, 1.0)
        ratio = math.exp(uniform(math.log(3 / 4), math.log(4 / 3)))
        width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < width <= WIDTH and 0 < height <= HEIGHT:
            top = at_most(HEIGHT - height)
            left = at_most(WIDTH - width)
            return flip, (left, top, left + width, top + height)
    width = round(HEIGHT * 4 / 3)
    left = (WIDTH - width) // 2
    return flip, (left, 0, left + width, HEIGHT)


def sounds() -> None:
    rng = np.random.default_rng(3)
    time = np.arange(200) / 8000
    tones = np.stack([0.6 * np.sin(2 * np.pi * 440 * time), 0.9 * np.cos(2 * np.pi * 97 * time)], 1)
    samples = np.clip(tones + rng.normal(0, 0.1, tones.shape), -1, 1 - 2**-23)
    samples[:2] = [[-1, 1 - 2**-31], [1, -1]]
    kinds = {
        "wav": ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"],
        "flac": ["PCM_16", "PCM_24"],
    }
    for extension, subtypes in kinds.items():
        for subtype in subtypes:
            sound(f"{extension}-{subtype.lower()}.{extension}", samples, subtype=subtype)
    sound("wav-extensible.wav", samples, subtype="PCM_16", format="WAVEX")
    sound("flac-mono.flac", samples[:, 0], subtype="PCM_16")


def sound(name: str, samples: np.ndarray, **options) -> None:
    soundfile.write(HERE / name, samples, 8000, **options)
    read, _ = soundfile.read(HERE / name, dtype="float32", always_2d=True)
    np.ascontiguousarray(read.T).astype("<f4").tofile((HERE / name).with_suffix(".f32"))


if __name__ == "__main__":
    rgb = picture()
    jpegs(rgb)
    pngs(rgb)
    webps(rgb)
    crops(rgb)
    sounds()
