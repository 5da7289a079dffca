import { describe, expect, it } from 'vitest';
import { printable, printableLines, shown, shownEnds } from './printable.js';

/** What a terminal or a reader's eye may be misled by, each between two letters. */
const MISLEADING: readonly (readonly [string, number])[] = [
  ['null', 0x00],
  ['bell', 0x07],
  ['backspace', 0x08],
  ['line feed', 0x0a],
  ['carriage return', 0x0d],
  ['escape', 0x1b],
  ['delete', 0x7f],
  ['C1 next line', 0x85],
  ['C1 device control', 0x90],
  ['C1 control sequence introducer', 0x9b],
  ['C1 operating system command', 0x9d],
  ['soft hyphen', 0xad],
  ['combining grapheme joiner', 0x34f],
  ['Arabic letter mark', 0x61c],
  ['Hangul filler', 0x3164],
  ['zero-width space', 0x200b],
  ['zero-width joiner', 0x200d],
  ['right-to-left mark', 0x200f],
  ['line separator', 0x2028],
  ['paragraph separator', 0x2029],
  ['left-to-right embedding', 0x202a],
  ['right-to-left override', 0x202e],
  ['word joiner', 0x2060],
  ['left-to-right isolate', 0x2066],
  ['pop directional isolate', 0x2069],
  ['byte order mark', 0xfeff],
  ['interlinear annotation', 0xfff9],
  ['tag', 0xe0041],
  ['variation selector', 0xe0100],
];

describe('printable', () => {
  it.each(MISLEADING)('escapes the %s', (_, code) => {
    const text = `a${String.fromCodePoint(code)}b`;
    const safe = printable(text);
    expect(safe).toMatch(/^a[\x21-\x7e]+b$/);
    expect(JSON.parse(`"${safe}"`)).toBe(text);
    expect(printable(safe)).toBe(safe);
  });

  it('escapes halves of pairs, and leaves whole ones', () => {
    expect(printable('a\ud83db')).toBe('a\\ud83db');
    expect(printable('a\ude00b')).toBe('a\\ude00b');
    expect(printable('a😀b')).toBe('a😀b');
  });

  it('leaves what is to be read', () => {
    for (const text of ['Straße, naïve', '東京 서울', 'שלום مرحبا', 'हिन्दी', '❤️ 👍🏽', '"a\\b"', 'e\u0301'])
      expect(printable(text)).toBe(text);
  });

  it('keeps the lines of a text of several', () => {
    expect(printableLines('a\n\tb\u001b[1m\r\n')).toBe('a\n\tb\\u001b[1m\\r\n');
  });
});

describe('shown', () => {
  it('cuts at so many characters, as they are printed', () => {
    expect(shown('x'.repeat(200))).toBe('x'.repeat(200));
    expect(shown('x'.repeat(900_000))).toBe(`${'x'.repeat(200)}… (900000 characters)`);
    expect(shown('\u001b'.repeat(900_000))).toBe(`${'\\u001b'.repeat(33)}… (900000 characters)`);
    expect(shown('\u001b'.repeat(40))).toBe(`${'\\u001b'.repeat(33)}… (40 characters)`);
  });

  it('cuts no character and no escape in two', () => {
    for (let pad = 0; pad < 8; pad++) {
      for (const unit of ['😀', '\u{e0041}', '\u001b', '\n']) {
        const head = shown('x'.repeat(pad) + unit.repeat(300), 100).split('…')[0]!;
        const text = JSON.parse(`"${head}"`) as string;
        expect(('x'.repeat(pad) + unit.repeat(300)).startsWith(text)).toBe(true);
        if (unit !== '\u001b') expect(encodeURIComponent(text)).toBeTruthy();
        expect(head.length).toBeGreaterThan(85);
      }
    }
  });
});

describe('shownEnds', () => {
  it('leaves both ends', () => {
    expect(shownEnds('short', 5)).toBe('short');
    const cut = shownEnds(`The model "${'x'.repeat(900_000)}" is not served here.`, 300);
    expect(cut).toMatch(/^The model "x+ … \(900\d+ characters\) … x+" is not served here\.$/);
    expect(cut.length).toBeLessThan(340);
    expect(shownEnds('\u001b'.repeat(250), 300).length).toBeLessThan(340);
    expect(shownEnds('a\nb\u001b', 20, true)).toBe('a\nb\\u001b');
  });
});
