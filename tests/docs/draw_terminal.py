#!/usr/bin/env python3
"""Draws a conversation in a terminal for the documents: runs `stagecoach run` on a pseudo-terminal, types what a user would,
and draws the last screen. Needs pyte and Pillow, and the font DejaVu Sans Mono.

  draw_terminal.py OUT.png [--light] [--columns 92] [--model deploy/demo-model]     STAGECOACH_BIN_DIR: folder of the programs

The pictures of docs/ are made again with

  tests/docs/draw_terminal.py docs/terminal-dark.png; tests/docs/draw_terminal.py docs/terminal-light.png --light
  tests/docs/draw_terminal.py docs/terminal-narrow.png --columns 56
"""
import argparse
import fcntl
import os
import pathlib
import pty
import select
import struct
import sys
import tempfile
import termios

import pyte
from PIL import Image, ImageDraw, ImageFont

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN_DIR = pathlib.Path(os.environ.get("STAGECOACH_BIN_DIR", ROOT / "build" / "cpu" / "bin")).resolve()
FONTS = pathlib.Path("/usr/share/fonts/truetype/dejavu")
FONT_SIZE, MARGIN, MOST_ROWS = 26, 28, 60
TIMEOUT_S = 300
# What is typed, and what the program says when it has done it.
SESSION = [("When does the first coach from Coldwater to Greywell leave on Tuesday?\r", "tokens/s"),
           ("/set temperature 0.2\r", "from the next answer on"), ("/hlep\r", "did you mean"),
           ("And which towns does the coach stop in?\r", "tokens/s")]
THEMES = {
    "dark": {"background": "#16181d", "default": "#d7dae0", "brightblack": "#8a919e", "cyan": "#56b6c2"},
    "light": {"background": "#fbfbf8", "default": "#24292f", "brightblack": "#6a737d", "cyan": "#0b7285"},
}


class Screen(pyte.Screen):
    """pyte leaves out dim text: it becomes grey."""

    def select_graphic_rendition(self, *attributes, **more):
        super().select_graphic_rendition(*(90 if one == 2 else one for one in attributes), **more)


class Session:
    def __init__(self, screen, command):
        self._stream = pyte.ByteStream(screen)
        self._unread = b""  # after what was waited for
        self._stream.feed(f"$ {' '.join(command)}\r\n".encode())
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            with tempfile.TemporaryDirectory() as state:
                os.execve(BIN_DIR / command[0], command, {**os.environ, "TERM": "xterm", "XDG_STATE_HOME": state, "NO_COLOR": ""})
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", screen.lines, screen.columns, 0, 0))
        self.read_until(b"> ")

    def read_until(self, text):
        seen = self._unread
        while text not in seen:
            if not select.select([self._terminal], [], [], TIMEOUT_S)[0]:
                sys.exit(f"draw_terminal: error: {text} did not come: {seen}")
            data = os.read(self._terminal, 4096)
            self._stream.feed(data)
            seen += data
        self._unread = seen[seen.index(text) + len(text):]

    def type(self, text, answer):
        os.write(self._terminal, text.encode())
        self.read_until(answer.encode())
        self.read_until(b"> ")

    def end(self):
        os.write(self._terminal, b"\x04")
        while True:
            try:
                if not os.read(self._terminal, 4096):
                    break
            except OSError:  # EIO: closed
                break
        os.waitpid(self._pid, 0)


def draw(screen, theme, path):
    fonts = {(bold, slanted): ImageFont.truetype(
        str(FONTS / f"DejaVuSansMono{'-' if bold or slanted else ''}{'Bold' if bold else ''}{'Oblique' if slanted else ''}.ttf"), FONT_SIZE)
        for bold in (False, True) for slanted in (False, True) if not slanted or (FONTS / "DejaVuSansMono-Oblique.ttf").exists()}
    width = round(fonts[False, False].getlength("M"))
    height = round(FONT_SIZE * 1.4)
    n_rows = max(row for row, line in enumerate(screen.display) if line.strip()) + 1
    image = Image.new("RGB", (screen.columns * width + 2 * MARGIN, n_rows * height + 2 * MARGIN), theme["background"])
    pen = ImageDraw.Draw(image)
    for row in range(n_rows):
        for column in range(screen.columns):
            cell = screen.buffer[row][column]
            font = fonts.get((cell.bold, cell.italics), fonts[cell.bold, False])
            pen.text((MARGIN + column * width, MARGIN + row * height), cell.data, font=font,
                     fill=theme.get(cell.fg, theme["default"]))
    image.quantize(64).save(path, optimize=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--light", action="store_true")
    parser.add_argument("--columns", type=int, default=92)
    parser.add_argument("--model", default="deploy/demo-model")
    given = parser.parse_args()
    os.chdir(ROOT)
    screen = Screen(given.columns, MOST_ROWS)
    session = Session(screen, ["stagecoach", "run", given.model])
    for text, answer in SESSION:
        session.type(text, answer)
    session.end()
    draw(screen, THEMES["light" if given.light else "dark"], given.out)


if __name__ == "__main__":
    main()
