"""Writes src/text/encoding/unicode-sets.ts: sets of characters as the Rust library `tokenizers` has them.

    python -m venv venv && venv/bin/pip install tokenizers unicodedata2
    venv/bin/python scripts/make-unicode-sets.py

The library takes some sets from crates that stand at old versions of Unicode, so that no `\\p{…}` of a JavaScript
engine is equal to them. Each character is tried on the library itself.
"""
from pathlib import Path

import tokenizers
import unicodedata2 as unicodedata
from tokenizers import normalizers, pre_tokenizers

OUT = Path(__file__).resolve().parents[1] / "src" / "text" / "encoding" / "unicode-sets.ts"
CODES = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]


def where(holds):
    return [code for code in CODES if holds(chr(code))]


def removed(normalizer):
    return where(lambda char: normalizer.normalize_str(char) == "")


def packed(codes):
    """Ranges in order, each the gap since the last one and its length less one where that is not 0, in base 36."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"

    def base36(number):
        return digits[number] if number < 36 else base36(number // 36) + digits[number % 36]

    ranges = []
    for code in codes:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    parts, last = [], 0
    for start, end in ranges:
        parts.append(base36(start - last) + (f".{base36(end - start)}" if end > start else ""))
        last = end
    return " ".join(parts)


def bert(**options):
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**{**off, **options})


def foreign():
    """Characters that a newer Unicode composes, decomposes or reorders and the library leaves alone."""
    forms = {form: getattr(normalizers, form)() for form in ("NFC", "NFD", "NFKC", "NFKD")}
    accents = normalizers.StripAccents()
    found = []
    for code in CODES:
        char = chr(code)
        moved = unicodedata.combining(char) != 0 and accents.normalize_str(char) != ""
        differs = any(unicodedata.normalize(form, char) != step.normalize_str(char) for form, step in forms.items())
        if moved or differs:
            found.append(code)
    return found


def without_script():
    """Characters of newer versions of Unicode, which `UnicodeScripts` cuts neither from Latin nor from Greek."""
    step = pre_tokenizers.UnicodeScripts()

    def uncut(char, by):
        return len(step.pre_tokenize_str(by + char + by)) == 1

    return where(lambda char: unicodedata.category(char) != "Cn" and uncut(char, "a") and uncut(char, "\u03b1"))


def main():
    punctuation = pre_tokenizers.Punctuation("removed")
    bert_chinese = bert(handle_chinese_chars=True)
    sets = {
        "PUNCTUATION": ("What `Punctuation` and `BertPreTokenizer` cut at.",
                        where(lambda char: char == "a" or not punctuation.pre_tokenize_str(char))),
        "COMBINING_MARKS": ("What `StripAccents` removes.", removed(normalizers.StripAccents())),
        "NONSPACING_MARKS": ("What `BertNormalizer` removes with `strip_accents`, of decomposed text.",
                             removed(bert(strip_accents=True))),
        "CONTROLS": ("What `BertNormalizer` removes with `clean_text`.", removed(bert(clean_text=True))),
        "CHINESE": ("What `BertNormalizer` sets apart by spaces.",
                    where(lambda char: " " + char + " " in bert_chinese.normalize_str("a" + char + "a") and char != " ")),
        "FOREIGN_TO_NORMAL_FORMS": ("What normal forms leave as it is, though newer versions of Unicode do not.", foreign()),
        "WITHOUT_SCRIPT": ("What has no script for `UnicodeScripts`, though newer versions of Unicode give it one.",
                           without_script()),
    }  # fmt: skip
    sets["PUNCTUATION"][1].remove(ord("a"))
    lines = [
        "/**",
        f" * Sets of characters as the Rust library tokenizers {tokenizers.__version__} has them, which is at several versions of Unicode.",
        " * Made by scripts/make-unicode-sets.py: ranges, each the gap since the last one and its length less one, in base 36.",
        " */",
        "",
    ]
    for name, (comment, codes) in sets.items():
        lines += [f"/** {comment} */", f"export const {name} =", f"  '{packed(codes)}';", ""]
    OUT.write_text("\n".join(lines), encoding="utf-8")
    print({name: len(codes) for name, (_, codes) in sets.items()}, OUT.stat().st_size)


main()
