"""Write ``envs/webshop/word_break.txt``: which characters play which part in a word.

    python tools/make_word_break_table.py

The character properties come from the Unicode tables that perl carries. Letters, digits and marks
are those of Unicode 9.0, emoji those of a later version: Lucene 8 mixes the two in the same way.
Each line of the file is a class letter (see ``envs/webshop/analyzer.py``) and its ranges in hex.
"""

from __future__ import annotations

import subprocess
from itertools import groupby
from pathlib import Path

_OUTPUT = Path(__file__).resolve().parent.parent / "envs" / "webshop" / "word_break.txt"
_OLD = r"\p{Present_In=9.0}"
_PROPERTIES = {
    "ALetter": r"\p{WB=ALetter}",
    "Hebrew": r"\p{WB=Hebrew_Letter}",
    "Numeric": r"\p{WB=Numeric}",
    "Fullwidth": r"\p{Blk=Half_And_Full_Forms}",
    "Digit": r"\p{Nd}",
    "Katakana": r"\p{WB=Katakana}",
    "MidLetter": r"\p{WB=MidLetter}",
    "MidNum": r"\p{WB=MidNum}",
    "MidNumLet": r"\p{WB=MidNumLet}",
    "SingleQuote": r"\p{WB=Single_Quote}",
    "DoubleQuote": r"\p{WB=Double_Quote}",
    "ExtendNumLet": r"\p{WB=ExtendNumLet}",
    "Extend": r"\p{WB=Extend}",
    "Format": r"\p{WB=Format}",
    "ZWJ": r"\p{WB=ZWJ}",
    "Regional": r"\p{WB=Regional_Indicator}",
    "Han": r"\p{Script=Han}",
    "Hiragana": r"\p{Script=Hiragana}",
    "Complex": r"\p{LB=Complex_Context}",
    "Old": _OLD,
    "Emoji": r"\p{Emoji}",
    "Pictographic": r"\p{Extended_Pictographic}",
    "Modifier": r"\p{Emoji_Modifier}",
    "ModifierBase": r"\p{Emoji_Modifier_Base}",
}
_ACCIDENTAL = {0xA9, 0xAE, 0x2122, 0x3030, 0x303D}
_KEYCAPS = {ord(c) for c in "0123456789#*"}


def _members(pattern: str) -> set[int]:
    """Code points that match a perl character class."""
    program = (
        f"no warnings; for my $c (0..0x10FFFF) {{ next if $c >= 0xD800 && $c <= 0xDFFF; "
        f'print "$c\\n" if chr($c) =~ /{pattern}/ }}'
    )
    out = subprocess.run(["perl", "-e", program], capture_output=True, text=True, check=True)
    return {int(line) for line in out.stdout.split()}


def _class_of(code: int, sets: dict[str, set[int]]) -> str:
    """The class letter of one character; the empty string for those that never matter."""
    has = {name for name, members in sets.items() if code in members}
    emoji = "Pictographic" in has or (
        "Emoji" in has and not has & {"Regional", "Modifier"} and code not in _KEYCAPS | _ACCIDENTAL
    )
    if code == 0xFE0E:
        return "v"
    if code == 0xFE0F:
        return "V"
    if code == 0x20E3:
        return "c"
    if "Modifier" in has:
        return "M"
    if "Old" in has:
        for name, letter in (
            ("ZWJ", "z"),
            ("Regional", "r"),
            ("Katakana", "K"),
            ("MidLetter", "l"),
            ("MidNum", "n"),
            ("MidNumLet", "b"),
            ("SingleQuote", "q"),
            ("DoubleQuote", "d"),
            ("ExtendNumLet", "_"),
            ("Hebrew", "H"),
        ):
            if name in has:
                return letter
        if has & {"Extend", "Format"}:
            return "t" if "Complex" in has else "x"
        if "ALetter" in has:
            return "e" if emoji else "a" if "Han" in has else "g" if "Hiragana" in has else "A"
        if "Numeric" in has or has >= {"Fullwidth", "Digit"}:
            return "D" if code in _KEYCAPS else "N"
    if emoji:
        return "B" if "ModifierBase" in has else "E"
    if code in _KEYCAPS:
        return "k"
    if "Old" in has:
        for name, letter in (("Complex", "s"), ("Han", "h"), ("Hiragana", "i")):
            if name in has:
                return letter
    return ""


def main() -> None:
    """Write the table."""
    sets = {name: _members(pattern) for name, pattern in _PROPERTIES.items()}
    classes = [_class_of(code, sets) for code in range(0x110000)]
    ranges: dict[str, list[str]] = {}
    for letter, run in groupby(range(0x110000), key=classes.__getitem__):
        codes = list(run)
        if letter:
            first, last = codes[0], codes[-1]
            ranges.setdefault(letter, []).append(
                f"{first:x}" if first == last else f"{first:x}-{last:x}"
            )
    lines = [f"{letter} {' '.join(ranges[letter])}" for letter in sorted(ranges)]
    _OUTPUT.write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
