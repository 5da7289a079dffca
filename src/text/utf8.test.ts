import { describe, expect, it } from 'vitest';
import { incompleteSuffixLength } from './utf8.js';

/** The proper prefixes of the encodings of all characters. */
const prefixes = new Set<string>();
const encoder = new TextEncoder();
for (let code = 0x80; code <= 0x10ffff; code++) {
  if (code >= 0xd800 && code <= 0xdfff) continue;
  const bytes = encoder.encode(String.fromCodePoint(code));
  for (let length = 1; length < bytes.length; length++) prefixes.add(bytes.subarray(0, length).join());
}

function reference(bytes: readonly number[]): number {
  for (let held = Math.min(3, bytes.length); held > 0; held--) {
    if (prefixes.has(bytes.slice(bytes.length - held).join())) return held;
  }
  return 0;
}

describe('incompleteSuffixLength', () => {
  it('agrees with the encodings of all characters on sequences of up to three bytes from the borders of the ranges', () => {
    const edges = [
      0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed,
      0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff,
    ];
    const wrong: string[] = [];
    const check = (...bytes: number[]): void => {
      const got = incompleteSuffixLength(Uint8Array.from(bytes));
      const expected = reference(bytes);
      if (got !== expected) wrong.push(`${bytes.map((b) => b.toString(16))}: ${got}, not ${expected}`);
    };
    for (const a of edges) {
      check(a);
      for (const b of edges) {
        check(a, b);
        if (a >= 0xc2) for (const c of edges) check(a, b, c);
      }
    }
    expect(wrong).toEqual([]);
    expect(incompleteSuffixLength(new Uint8Array(0))).toBe(0);
    expect(incompleteSuffixLength(Uint8Array.of(0xf0, 0x9f, 0x98, 0x80))).toBe(0);
  });
});
