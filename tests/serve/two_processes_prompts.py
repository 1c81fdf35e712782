"""What both halves of the test of two processes are asked."""

PROMPTS = [
    b"the pages of a book are turned one by one",
    b"the pages of a book are turned one after the other",
    b"short",
    b"a letter is opened, read, and put aside",
    b"the pages of a book are turned one by one",
]
