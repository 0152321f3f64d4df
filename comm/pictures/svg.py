"""A picture as SVG, readable on light and dark pages."""
import pathlib

COMM = pathlib.Path(__file__).resolve().parents[1]
WIDTH = 880
RANK_COLORS = ("blue", "orange", "purple", "green")

# The hues are those of train/report/trace_picture.cpp, dark enough for white text.
STYLE = """<style>
  svg {
    --page: #ffffff; --ink: #24292f; --quiet: #57606a; --line: #8c959f; --grid: #d0d7de; --track: #f3f5f7;
    --blue: #1f6fc4; --orange: #b85c12; --purple: #7a52c4; --green: #237a4b; --red: #c0304f;
    --pale: #d7efe1; --rose: #f3c9d1; --veil: 0.3;
  }
  @media (prefers-color-scheme: dark) {
    svg {
      --page: #0d1117; --ink: #e6edf3; --quiet: #9da5ae; --line: #7d8590; --grid: #3d444d; --track: #1b222b;
      --blue: #2a72c0; --orange: #b3601f; --purple: #8460cc; --green: #2a8052; --red: #c23c58;
      --pale: #17382a; --rose: #5c2733; --veil: 0.5;
    }
  }
  text { font: 12px system-ui, sans-serif; fill: var(--ink) }
  .title { font-size: 14px; font-weight: 600 } .strong { font-weight: 600 } .quiet { fill: var(--quiet) }
  .on { fill: #ffffff } .code { font-family: ui-monospace, monospace }
  .page { fill: var(--page) } .track, .zoom { fill: var(--track) }
  .blue { fill: var(--blue) } .orange { fill: var(--orange) } .purple { fill: var(--purple) }
  .green { fill: var(--green) } .red { fill: var(--red) }
  .pale { fill: var(--pale); stroke: var(--green) } .sum { fill: var(--rose); stroke: var(--red) }
  .empty { fill: var(--page); stroke: var(--line) }
  .dashed { fill: var(--page); stroke: var(--line); stroke-dasharray: 4 3 }
  .wait { fill: var(--page); stroke: var(--line); stroke-dasharray: 2 2 }
  .hatch { stroke: var(--grid); stroke-width: 4 } .hatched { fill: url(#hatch); stroke: var(--grid) }
  .ribbon { fill-opacity: var(--veil) } .cut { stroke: var(--page); stroke-width: 1.5 }
  .link { fill: none; stroke: var(--line); stroke-width: 1.5 } .broken { stroke-dasharray: 3 3 }
  .faint { stroke: var(--grid); stroke-width: 1 }
  .arrow { fill: none; stroke: var(--ink); stroke-width: 1.3; marker-end: url(#head) } .head { fill: var(--ink) }
</style>
<defs>
<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path class="head" d="M0 0.5 8 4 0 7.5z"/></marker>
<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect class="page" width="6" height="6"/><path class="hatch" d="M0 0V6"/></pattern>
</defs>
"""


def check(holds, message):
    if not holds:
        raise SystemExit(message)


def number(value):
    return f"{value:.1f}".removesuffix(".0")


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;")


class Picture:
    """`title` is read aloud and stands at the top."""

    def __init__(self, title, height):
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
                      f'height="{height}" role="img" aria-label="{escaped(title)}">\n{STYLE}'
                      '<rect class="page" width="100%" height="100%"/>']
        self.text(12, 22, title, "title")

    def text(self, x, y, words, style="", anchor="start"):
        if words:
            attributes = (f' class="{style}"' if style else "") + (f' text-anchor="{anchor}"' if anchor != "start" else "")
            self.parts.append(f'<text x="{number(x)}" y="{number(y)}"{attributes}>{escaped(words)}</text>')

    def box(self, style, x, y, width, height, words="", note="", text_style="on", rx=2):
        """A box with words in its middle; `note` appears at the pointer where a browser shows the SVG by itself."""
        shape = (f'<rect class="{style}" x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}" '
                 f'rx="{rx}"')
        self.parts.append(shape + (f"><title>{escaped(note)}</title></rect>" if note else "/>"))
        self.text(x + width / 2, y + height / 2 + 4, words, text_style, "middle")

    def path(self, style, data):
        self.parts.append(f'<path class="{style}" d="{data}"/>')

    def line(self, style, x1, y1, x2, y2):
        self.path(style, f"M{number(x1)} {number(y1)} {number(x2)} {number(y2)}")

    def legend(self, x, y, entries):
        """Entries of a style, its meaning, and the width that both take."""
        for style, meaning, width in entries:
            self.box(style, x, y - 11, 18, 13)
            self.text(x + 24, y, meaning, "quiet")
            x += width

    def save(self, path):
        path.write_text("\n".join(self.parts) + "\n</svg>\n")
