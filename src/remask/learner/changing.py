"""Changes of a learner that train nothing: the last visit is undone, a class is renamed."""

from remask.learner.accounts import Undone
from remask.learner.errors import LearnerError
from remask.learner.folder import LearnerFolder
from remask.learner.manifest import Learnt


def undo(folder: LearnerFolder) -> Undone:
    """Go back to before the last visit, which is a new generation. Raises LearnerError."""
    now = folder.manifest
    if not now.earlier:
        keep = now.settings.keep_generations
        raise LearnerError(
            f"{folder.path} has no earlier generation to go back to. It keeps at most {keep} "
            f"(keep_generations), and forgetting a class removes them. Nothing was changed."
        )
    then = now.earlier[-1]
    undone = now.history[then.visits :]
    folder.commit(
        now.model_copy(
            update={
                **{name: getattr(then, name) for name in Learnt.model_fields},
                "history": now.history[: then.visits],
                "earlier": now.earlier[:-1],
            }
        )
    )
    known = tuple(then.known)
    removed = tuple(name for name in now.known if name not in then.known)
    return Undone(", ".join(visit.name for visit in undone), known, removed)


def rename(folder: LearnerFolder, old: str, new: str, *, merge: bool) -> None:
    """Give a class another name, or merge it with the class of that name. Raises LearnerError.

    Merging keeps both outputs, which have the same name from then on. No sample and no weight is
    changed, so only the manifest is written.
    """
    now = folder.manifest
    if old == new:
        raise LearnerError(f"the class is called {old!r} already. Nothing was changed.")
    if new in now.known and not merge:
        raise LearnerError(
            f"there is a class {new!r} already. Choose another name, or make one class of both: "
            f"merge=True (--merge)."
        )
    if new not in now.known and merge:
        raise LearnerError(f"cannot merge {old!r} with {new!r}: {new!r} is not a known class.")

    def named(learnt: Learnt) -> tuple[str | None, ...]:
        return tuple(new if name == old else name for name in learnt.classes)

    folder.commit(
        now.model_copy(
            update={
                "classes": named(now),
                "history": tuple(visit.renamed(old, new) for visit in now.history),
                "earlier": tuple(
                    earlier.model_copy(update={"classes": named(earlier)})
                    for earlier in now.earlier
                ),
            }
        )
    )
