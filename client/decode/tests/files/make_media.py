"""Writes the pictures and sounds of these tests, and the values that Pillow and soundfile read.

    python -m venv venv && venv/bin/pip install pillow==13.0.0 soundfile==0.14.0 numpy
    venv/bin/python make_media.py   # also needs jpegtran, cjpeg and flac

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
from PIL import Image, ImageOps

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
    # Orientation 6 is "turn to the right", which Pillow does only if it is told to.
    exif = Image.Exif()
    exif[0x0112] = 6
    save(rgb, "jpeg-turned.jpg", quality=90, exif=exif)
    ycck(rgb)
    scans("444")
    scans("420")
    for name, options in {"arithmetic": [], "arithmetic-progressive": ["-progressive"]}.items():
        path = HERE / f"jpeg-{name}.jpg"
        wanted = ["-arithmetic", "-quality", "90", *options, "-outfile", path, HERE / "rgb.ppm"]
        subprocess.run(["cjpeg", *wanted], check=True)
        expect(path.name)


def turned(rgb: Image.Image) -> None:
    """The same few pixels, each time with another orientation in the EXIF block."""
    small = rgb.crop((10, 5, 15, 8))
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        small.save(HERE / f"turned-{orientation}.png", exif=exif)
        upright = ImageOps.exif_transpose(Image.open(HERE / f"turned-{orientation}.png"))
        upright.save(HERE / f"turned-{orientation}.ppm")
    small.save(HERE / "turned-8.webp", exif=exif, lossless=True)
    small.save(HERE / "turned-8.jpg", exif=exif, quality=90)
    ImageOps.exif_transpose(Image.open(HERE / "turned-8.jpg")).save(HERE / "turned-8-jpg.ppm")


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
    wide.astype("<u2").tofile(HERE / "png-16.u16")
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
    write("nearest", rgb.resize((16, 16), Image.Resampling.NEAREST))
    write("nearest-larger", rgb.resize((50, 50), Image.Resampling.NEAREST))
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
    for law in ("ALAW", "ULAW"):
        sound(f"wav-{law.lower()}.wav", samples, subtype=law)
    sound("wav-rf64.wav", samples, subtype="PCM_16", format="RF64")
    wav = bytearray((HERE / "wav-pcm_16.wav").read_bytes())
    for name, length in (("unknown", b"\xff" * 4), ("zero", bytes(4)), ("sox", b"\x00\xf0\xff\x7f")):
        wav[4:8] = length
        wav[40:44] = length
        (HERE / f"wav-open-{name}.wav").write_bytes(wav)
    flacs(samples)


def flacs(samples: np.ndarray) -> None:
    """FLAC that soundfile does not write."""
    numbers = np.clip(np.round(samples * 2**31), -(2**31), 2**31 - 1).astype(np.int64)
    raw = numbers.astype("<i4").tobytes()
    options = ["--force-raw-format", "--endian=little", "--sign=signed", "--channels=2"]
    options += ["--bps=32", "--sample-rate=8000", "--silent", "--force", "-"]
    path = HERE / "flac-pcm_32.flac"
    subprocess.run(["flac", "-o", path, *options], input=raw, check=True)
    # soundfile reads no 32 bits.
    (numbers.T / 2**31).astype("<f4").tofile(path.with_suffix(".f32"))
    whole = (HERE / "flac-pcm_16.flac").read_bytes()
    # An ID3 tag of 300 bytes, with 7 bits of its length a byte.
    (HERE / "flac-id3.flac").write_bytes(b"ID3\4\0\0\0\0\2\x2c" + bytes(300) + whole)
    # Frames keep 16 bits where the stream says 24 and 8.
    for depth in (24, 8):
        changed = bytearray(whole)
        code = depth - 1
        changed[20] = changed[20] & 0xFE | code >> 4
        changed[21] = changed[21] & 0x0F | (code & 15) << 4
        (HERE / f"flac-depth-{depth}.flac").write_bytes(changed)
    (HERE / "flac-escaped.flac").write_bytes(escaped(numbers >> 16))
    expect_sound("flac-escaped.flac")


def escaped(samples: np.ndarray) -> bytes:
    """One frame that leaves its depth to the stream. Its partitions are Rice codes and plain
    numbers in turn."""
    count = len(samples)
    info = f"{count:016b}" * 2 + "0" * 48 + f"{8000:020b}{1:03b}{15:05b}{count:036b}" + "0" * 128
    # Sync, a size of 8 bits that follows, the stream's rate, two channels, the stream's depth.
    header = packed("1" * 13 + "000" + "0110" + "0000" + "0001" + "0000" + "0" * 8 + f"{count - 1:08b}")
    header += bytes([crc(header, 8, 0x07)])
    bits = ""
    for channel in samples.T:
        # Fixed prediction of order 0, 4-bit parameters, 8 partitions.
        bits += "0" + "001000" + "0" + "00" + "0011"
        for number, part in enumerate(np.split(channel, 8)):
            if number % 2:
                bits += "1111" + "10000" + "".join(f"{int(value) & 0xFFFF:016b}" for value in part)
                continue
            bits += "1100"
            for value in part.tolist():
                folded = value << 1 ^ value >> 15
                bits += "0" * (folded >> 12) + "1" + f"{folded & 0xFFF:012b}"
    frame = header + packed(bits)
    frame += crc(frame, 16, 0x8005).to_bytes(2, "big")
    return b"fLaC\x80\0\0\x22" + packed(info) + frame


def packed(bits: str) -> bytes:
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def crc(data: bytes, width: int, polynomial: int) -> int:
    crc = 0
    for byte in data:
        crc ^= byte << (width - 8)
        for _ in range(8):
            crc = (crc << 1 ^ (polynomial if crc >> (width - 1) else 0)) & ((1 << width) - 1)
    return crc


def sound(name: str, samples: np.ndarray, **options) -> None:
    soundfile.write(HERE / name, samples, 8000, **options)
    expect_sound(name)


def expect_sound(name: str) -> None:
    read, _ = soundfile.read(HERE / name, dtype="float32", always_2d=True)
    np.ascontiguousarray(read.T).astype("<f4").tofile((HERE / name).with_suffix(".f32"))


if __name__ == "__main__":
    rgb = picture()
    jpegs(rgb)
    turned(rgb)
    pngs(rgb)
    webps(rgb)
    crops(rgb)
    sounds()
