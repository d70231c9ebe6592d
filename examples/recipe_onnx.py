"""Run a learner that was exported to ONNX, without torch: numpy, onnxruntime and Pillow.

remask export animals --to onnx
python recipe_onnx.py animals.onnx photo.jpg another.png
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from PIL import Image, ImageOps


def read_image(path: str, how: dict[str, Any]) -> npt.NDArray[np.uint8]:
    """Read an image as the learner does: upright, on white, cropped to the centre and resized."""
    size = how["width"], how["height"]
    with Image.open(path) as image:
        if image.format == "JPEG":  # large photographs are decoded at a fraction of their size
            image.draft(image.mode, (4 * size[0], 4 * size[1]))
        upright = ImageOps.exif_transpose(image)
    if "A" in upright.getbands() or "transparency" in upright.info:
        upright = upright.convert("RGBA")
        white = Image.new("RGBA", upright.size, "white")
        upright = Image.alpha_composite(white, upright)
    fitted = ImageOps.fit(upright.convert(how["mode"]), size, Image.Resampling.BILINEAR)
    return np.asarray(fitted).reshape(*fitted.size[::-1], -1).transpose(2, 0, 1)


def main(model: str, *images: str) -> None:
    """Print the class of each image and its probability; mark answers below 90 % accuracy."""
    note = json.loads(Path(f"{model}.json").read_text("utf-8"))
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    least = {each["accuracy"]: each["confidence"] for each in note["abstain"]}.get(0.9)
    for image in images:
        inputs = read_image(image, note["image"])[None]
        (probabilities,) = session.run(None, {note["input"]["name"]: inputs})[0]
        best = int(probabilities.argmax())
        sure = least is not None and probabilities[best] >= least
        mark = "" if sure else " (not sure)"
        print(f"{image}: {note['classes'][best]} {probabilities[best]:.1%}{mark}")


if __name__ == "__main__":
    main(*sys.argv[1:])
