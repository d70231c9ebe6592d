"""Serve a learner over HTTP with FastAPI; it keeps learning in other processes meanwhile.

python recipe_serve.py animals --abstain 0.9 --unknown 0.05
curl -F file=@photo.jpg http://127.0.0.1:8000/predict
"""

import argparse
import tempfile
import threading
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, UploadFile

from remask import Learner
from remask.learner import LearnerError

LARGEST = 20 << 20  # bytes of an upload


def serve(learner: Learner, abstain: float | None = None, unknown: float | None = None) -> FastAPI:
    """Make the application. `abstain` and `unknown` are those of `Learner.predict`."""
    app = FastAPI(title="remask learner")
    one_at_a_time = threading.Lock()

    @app.get("/")
    def about() -> dict[str, Any]:
        """Return the classes that are known and the number of visits."""
        with one_at_a_time:
            learner.refresh()
            return {"classes": list(learner.classes), "visits": len(learner.history)}

    @app.post("/predict")
    def predict(file: UploadFile, top: int = 3) -> dict[str, Any]:
        """Name the class of an image that is uploaded."""
        contents = file.file.read(LARGEST + 1)
        if len(contents) > LARGEST:
            raise HTTPException(413, f"the image has more than {LARGEST:,} bytes")
        with tempfile.NamedTemporaryFile(suffix=".img") as image, one_at_a_time:
            image.write(contents)
            image.flush()
            try:
                learner.refresh()  # to the newest generation, if another process has learnt
                found = learner.predict([image.name], top=top, abstain=abstain, unknown=unknown)
            except LearnerError as error:
                reason = str(error).replace(image.name, file.filename or "the image")
                raise HTTPException(422, reason) from error
        (answer,) = found
        return {
            "name": answer.name,
            "probability": answer.probability,
            "top": [{"name": name, "probability": share} for name, share in answer.top],
            "unknown": answer.unknown,
            "abstained": answer.name is None and not answer.unknown,
            "visits": len(learner.history),
        }

    return app


def main() -> None:
    """Read the command line and serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", help="the learner's folder")
    parser.add_argument("--abstain", type=float, metavar="ACCURACY")
    parser.add_argument("--unknown", type=float, metavar="RATE")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    learner = Learner.open(given.folder)
    uvicorn.run(serve(learner, given.abstain, given.unknown), port=given.port)


if __name__ == "__main__":
    main()
