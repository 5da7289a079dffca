import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { describe, expect, it } from 'vitest';
import { reader } from '../../../test/setup/schema-reader.js';
import { Budget } from '../limits.js';
import { regexWords } from '../regex.js';
import { hasNoWords, intersectWords, otherWords, wordsOfLength } from '../words.js';
import { FORMATS, SHORT_FORMATS } from './formats.js';

describe('formats beside lengths', () => {
  it.each<[object, string[], string[]]>([
    [
      { format: 'email', maxLength: 254 },
      ['a@b.c', 'first.last+tag@mail.example.com'],
      ['a', '@b', 'a@', 'a@-b', 'a..b@c'],
    ],
    [{ format: 'email', minLength: 6, maxLength: 10 }, ['ab@c.de', 'a@b.co'], ['a@b.c', 'abcdefg@h.de']],
    [
      { format: 'uri', minLength: 1, maxLength: 2083 },
      ['https://example.com/a%20b?c=d&e#f', 'mailto:a@b.c'],
      ['', 'a b', '//x', 'https://a/%2'],
    ],
    [{ format: 'hostname', maxLength: 255 }, ['example.com', 'a-b.c'], ['', '-a', 'a-', 'a..b', 'a_b']],
    [
      {
        format: 'email',
        maxLength: 100,
        pattern:
          "^(?:[A-Za-z0-9_'+\\-]+\\.)*[A-Za-z0-9_'+\\-]*[A-Za-z0-9_+-]@(?:[A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$",
      },
      ['ab.c@d.ef'],
      ['ab@c', 'ab@c.d', '.a@b.cd'],
    ],
  ])('are taken: %j', (schema, good, bad) => {
    const ajv = addFormats.default(new Ajv2020({ strict: false }));
    const isRight = ajv.compile({ type: 'string', ...schema });
    const takes = reader({ type: 'string', ...schema });
    for (const text of good) expect([takes(text), isRight(text)], text).toEqual([true, true]);
    for (const text of bad) expect(takes(text), text).toBe(false);
  });

  it.each(Object.keys(SHORT_FORMATS))('write nothing that is not of the format: %s', (format) => {
    const { pattern, most } = SHORT_FORMATS[format]!;
    const budget = new Budget();
    const short = intersectWords(regexWords(pattern, false, budget), wordsOfLength(0, most, budget), budget);
    const others = otherWords(regexWords(FORMATS[format]!, false, new Budget()), new Budget());
    expect(hasNoWords(short)).toBe(false);
    // Each in a budget of its own; what both have would be written wrongly.
    expect(hasNoWords(intersectWords(short, others, new Budget()))).toBe(true);
  });
});
