"""Text from files and messages, made safe to print."""

_LONGEST = 100_000


def printable(text: str) -> str:
    """Replace unprintable characters, such as escape sequences, except line breaks and tabs."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def prose(text: str) -> str:
    """Return the first 100,000 characters of a message, printable."""
    return printable(text[:_LONGEST])
