"""Text from elsewhere, made fit to be shown: nothing in it can steer a terminal or a program."""

_LONGEST = 100_000
_LAYOUT = "\n\t"  # what prose may have beside characters that can be seen


def printable(text: str) -> str:
    """The text with a question mark for everything that cannot be seen, line breaks apart.

    Escape sequences, characters that turn the direction of writing, and halves of characters, as
    file names have that are not valid Unicode, are such.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _LAYOUT else "?" for c in text)


def prose(text: str) -> str:
    """What is kept of a message that somebody else wrote: printable, and no longer than a book."""
    return printable(text[:_LONGEST])
