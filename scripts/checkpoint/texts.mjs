// What a published checkpoint is asked: six prompts, and texts of all scripts for its tokenizer. The same on every run.

export const PROMPTS = [
  'The capital of France is',
  'Once upon a time, in a small village by the sea, there lived',
  'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n',
  'Water boils at a lower temperature on a mountain because',
  'Q: A train leaves at 9:40 and arrives at 12:05. How long does it take?\nA:',
  'Die drei wichtigsten Regeln beim Schwimmen sind',
];

/** First and last code points of runs of letters, signs and marks. */
const RUNS = [
  ...[0x21, 0x7e, 0xa1, 0x17f, 0x180, 0x24f, 0x250, 0x2af, 0x300, 0x36f, 0x370, 0x3ff, 0x400, 0x4ff],
  ...[0x531, 0x586, 0x5d0, 0x5ea, 0x600, 0x6ff, 0x700, 0x74f, 0x780, 0x7b1, 0x900, 0x97f, 0x980, 0x9fe],
  ...[0xa01, 0xa76, 0xa81, 0xaff, 0xb01, 0xb77, 0xb82, 0xbfa, 0xc00, 0xc7f, 0xc80, 0xcf2, 0xd00, 0xd7f],
  ...[0xd82, 0xdf4, 0xe01, 0xe5b, 0xe81, 0xedf, 0xf00, 0xfda, 0x1000, 0x109f, 0x10a0, 0x10ff],
  ...[0x1100, 0x11ff, 0x1200, 0x139f, 0x13a0, 0x13f5, 0x1400, 0x167f, 0x16a0, 0x16f8, 0x1780, 0x17f9],
  ...[0x1800, 0x18aa, 0x1e00, 0x1eff, 0x1f00, 0x1ffe, 0x2010, 0x2027, 0x2030, 0x205e, 0x2070, 0x209c],
  ...[0x20a0, 0x20c0, 0x2100, 0x218b, 0x2190, 0x23ff, 0x2500, 0x27bf, 0x2c80, 0x2cff, 0x2d30, 0x2d7f],
  ...[0x3001, 0x303f, 0x3041, 0x309f, 0x30a0, 0x30ff, 0x3105, 0x312f, 0x3131, 0x318e, 0x4e00, 0x9fff],
  ...[0xa000, 0xa48c, 0xac00, 0xd7a3, 0xf900, 0xfad9, 0xfe70, 0xfefc, 0xff01, 0xffee, 0x10300, 0x10323],
  ...[0x10400, 0x1044f, 0x12000, 0x12399, 0x13000, 0x1342e, 0x1d400, 0x1d7ff, 0x1f300, 0x1f64f],
  ...[0x1f680, 0x1f6fc, 0x1f900, 0x1f9ff, 0x20000, 0x2a6df],
];

const PIECES = [
  ...[
    'the ',
    "don't ",
    "it's",
    "WE'LL ",
    'http://a.b/c?d=1',
    '3.14',
    '1234567',
    '2026-11-26',
    '  ',
    '   ',
    '\t',
    '\n',
  ],
  ...[
    '\n\n',
    '\r\n',
    ' \n ',
    '{"a": [1, 2]}',
    'if (x >= 0) {',
    '!!!',
    '...',
    '—',
    '„Text“',
    'naïve ',
    'Straße ',
    '½',
    '٣٤٥',
  ],
  ...[
    '\u00a0',
    '\u200b',
    '\u200d',
    '\ufeff',
    '\u3000',
    'e\u0301',
    '👩‍👩‍👧‍👦',
    '🇩🇪',
    '👍🏽',
    'İstanbul ',
    'ﬁ',
    '²³',
    'Ⅻ',
    '१२',
  ],
];

/** Numbers in [0, 1), the same on every run (mulberry32). */
function draws(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let z = Math.imul(state ^ (state >>> 15), 1 | state);
    z = (z + Math.imul(z ^ (z >>> 7), 61 | z)) ^ z;
    return ((z ^ (z >>> 14)) >>> 0) / 2 ** 32;
  };
}

/**
 * Texts of one script each, of two, and of mixed pieces.
 * @param {number} count
 */
export function texts(count) {
  const draw = draws(20261126);
  const below = (n) => Math.floor(draw() * n);
  const letters = (run, length) =>
    Array.from({ length }, () => {
      const first = RUNS[2 * run];
      return draw() < 0.15 ? ' ' : String.fromCodePoint(first + below(RUNS[2 * run + 1] - first + 1));
    }).join('');
  return Array.from({ length: count }, (_, i) => {
    const run = i % (RUNS.length / 2);
    const kind = i % 4;
    if (kind === 0) return letters(run, 1 + below(40));
    if (kind === 1)
      return (
        letters(run, 1 + below(12)) +
        PIECES[below(PIECES.length)] +
        letters(below(RUNS.length / 2), 1 + below(12))
      );
    if (kind === 2) return Array.from({ length: 1 + below(12) }, () => PIECES[below(PIECES.length)]).join('');
    return Array.from(
      { length: 1 + below(6) },
      () => PIECES[below(PIECES.length)] + letters(below(RUNS.length / 2), below(6)),
    ).join('');
  });
}
