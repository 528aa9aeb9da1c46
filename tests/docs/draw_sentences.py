#!/usr/bin/env python3
"""Draws comments and sentences at random, without the code around them: somebody who has not seen the code restates each,
and a second person compares that with the code.

usage: draw_sentences.py --seed N [--count 30]

Every item is as likely as any other: a comment (also a docstring) of C++, CUDA, Rust, Python and proto files; a sentence
of a Markdown file, outside code and tables; the help text of a flag; a log line. Items under four words are left out.
"""
import argparse
import ast
import io
import pathlib
import random
import re
import subprocess
import textwrap
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[2]
C_LIKE = (".h", ".cpp", ".cc", ".inc", ".inl", ".cu", ".cuh", ".rs", ".proto")
TOKEN = re.compile(r'''(?P<comment>//[^\n]*|/\*.*?\*/)|R"(?P<d>\w*)\(.*?\)(?P=d)"|r(?P<h>\#+)".*?"(?P=h)'''
                   r'''|(?P<string>"(?:\\.|[^"\\])*")|'(?:\\.|[^'\\\n])\'''', re.S)
READ_BY_USERS = re.compile(r"(?:add_\w+|Add\w+|spdlog::(?:debug|info|warn|error|critical))\s*\([^;{}]*$")
NO_PROSE = re.compile(r"NOLINT|clang-format|SPDX|^(?:namespace|type:|noqa)\b|^!?/usr/bin")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*\[(])")


def merged(comments):
    """(line, text) from (line, column, whether code precedes it, text): comments on lines of their own join the one above."""
    block, last = [], (0, 0)
    for line, column, after_code, text in [*comments, (-1, 0, True, "")]:
        if block and (after_code or last != (line - 1, column)):
            yield block[0][0], " ".join(text for _, text in block)
            block = []
        block.append((line, text))
        last = (line, column)


def of_c_like(name, text):
    comments, run, end = [], "", 0
    for match in TOKEN.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        before = text[text.rfind("\n", 0, match.start()) + 1:match.start()]
        if match["comment"]:
            body = re.sub(r"^(?://[/!]*<?|/\*+)|\*/$|\n\s*\*?", " ", match["comment"]).strip()
            comments.append((line, len(before), bool(before.strip()), body))
        elif match["string"]:
            if not run or text[end:match.start()].strip():  # not a further piece of the last literal
                run, start = "", line
                is_read = re.search(r"flags?\.", name) or READ_BY_USERS.search(text[max(0, match.start() - 400):match.start()])
            run, end = run + match["string"][1:-1].replace('\\"', '"'), match.end()
            if is_read and not re.match(r'\s*"', text[end:]):
                yield start, run
    yield from merged(comments)


def of_python(name, text):
    yield from merged((*token.start, bool(token.line[:token.start[1]].strip()), token.string.lstrip("#! "))
                      for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node):
            yield node.body[0].lineno, ast.get_docstring(node)
        elif isinstance(node, ast.keyword) and node.arg == "help" and isinstance(node.value, ast.Constant):
            yield node.value.lineno, str(node.value.value)


def of_markdown(name, text):
    text = re.sub(r"^ *```.*?^ *```$|^---\n.*?^---$", lambda match: "\n" * match[0].count("\n"), text, flags=re.M | re.S)
    for block in re.finditer(r"(?:^(?![ \t]*[|#<]).+\n?(?:(?!\s*[-*|#<]\s|\s*\d+\. ).+\n?)*)", text, re.M):
        position = block.start()
        for sentence in SENTENCE_END.split(block[0]):
            position = text.index(sentence, position)
            yield text.count("\n", 0, position) + 1, re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "", sentence)


def items():
    for name in subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n"):
        read = (of_c_like if name.endswith(C_LIKE) else of_python if name.endswith(".py") else
                of_markdown if name.endswith(".md") else None)
        for line, text in read(name, (ROOT / name).read_text()) if read else ():
            if len(re.findall(r"[A-Za-z]{2,}", text)) >= 4 and not NO_PROSE.search(text):
                yield name, line, text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True, help="the same seed draws the same items of a commit")
    parser.add_argument("--count", type=int, default=30, help="how many to draw [30]")
    options = parser.parse_args()
    every = list(items())
    for number, (name, line, text) in enumerate(random.Random(options.seed).sample(every, options.count), 1):
        print(f"{number}. {name}:{line}\n{textwrap.fill(' '.join(text.split()), 110, initial_indent='   ', subsequent_indent='   ')}\n")
    print(f"{options.count} of {len(every)} items, seed {options.seed}")


if __name__ == "__main__":
    main()
