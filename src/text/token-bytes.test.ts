import { describe, expect, it } from 'vitest';
import type { JsonObject } from './json-file.js';
import { TOKEN_KNOWN, tokenBytes } from './token-bytes.js';
import { Tokenizer } from './tokenizer.js';

function tokenizer(
  decoder: JsonObject | null,
  vocab: Record<string, number>,
  added: object[] = [],
): Tokenizer {
  return Tokenizer.fromJson({ model: { type: 'BPE', vocab, merges: [] }, added_tokens: added, decoder });
}

function bytesOf(decoder: JsonObject | null, token: string): number[] {
  return [...tokenBytes(tokenizer(decoder, { [token]: 0 }).tokenTable, 0)];
}

function textOf(decoder: JsonObject, token: string): string {
  return new TextDecoder().decode(Uint8Array.from(bytesOf(decoder, token)));
}

const BYTE_LEVEL = { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true };
const sequence = (...decoders: JsonObject[]): JsonObject => ({ type: 'Sequence', decoders });
const REPLACE = { type: 'Replace', pattern: { String: '\u2581' }, content: ' ' };
const LLAMA = sequence(
  REPLACE,
  { type: 'ByteFallback' },
  { type: 'Fuse' },
  { type: 'Strip', content: ' ', start: 1, stop: 0 },
);

describe('byte-level tokens', () => {
  it("reads GPT-2's byte alphabet", () => {
    expect(bytesOf(BYTE_LEVEL, 'Hello')).toEqual([72, 101, 108, 108, 111]);
    expect(bytesOf(BYTE_LEVEL, 'ĠaĊ')).toEqual([0x20, 0x61, 0x0a]);
    expect(bytesOf(BYTE_LEVEL, 'ðŁĺĢ')).toEqual([0xf0, 0x9f, 0x98, 0x80]);
    expect(bytesOf(BYTE_LEVEL, 'ÃŃ')).toEqual([0xc3, 0xad]);
    // The first byte without a character of its own is 0, the last 0xAD.
    expect(bytesOf(BYTE_LEVEL, 'Ā\u0143')).toEqual([0x00, 0xad]);
    expect(bytesOf(sequence(BYTE_LEVEL), 'Ġ')).toEqual([0x20]);
  });

  it('takes tokens outside the alphabet as text, and added tokens no other way', () => {
    const table = tokenizer(BYTE_LEVEL, { a: 0, 'a b': 1 }, [
      { id: 3, content: 'Ġ日', special: false },
    ]).tokenTable;
    expect([...tokenBytes(table, 1)]).toEqual([0x61, 0x20, 0x62]);
    expect(new TextDecoder().decode(tokenBytes(table, 3).slice())).toBe('Ġ日');
    expect(tokenBytes(table, 2)).toHaveLength(0);
    expect([...table.flags]).toEqual([TOKEN_KNOWN, TOKEN_KNOWN, 0, TOKEN_KNOWN]);
    expect(tokenBytes(table, 4)).toHaveLength(0);
    expect(tokenBytes(table, -1)).toHaveLength(0);
  });
});

describe('sentencepiece-style tokens', () => {
  it('replaces marks, reads byte tokens and notes the leading space', () => {
    expect(textOf(LLAMA, '\u2581Hello\u2581\u2581x')).toBe(' Hello  x');
    expect(bytesOf(LLAMA, '<0xE2>')).toEqual([0xe2]);
    expect(bytesOf(LLAMA, '<0x0a>')).toEqual([0x0a]);
    expect(textOf(LLAMA, '<0xG1>')).toBe('<0xG1>');
    expect(textOf(LLAMA, '<0xE2>x')).toBe('<0xE2>x');
    expect(tokenizer(LLAMA, { a: 0 }).tokenTable).toMatchObject({ leadingCount: 1, leadingByte: 0x20 });
    const gemma = sequence(REPLACE, { type: 'ByteFallback' }, { type: 'Fuse' });
    expect(tokenizer(gemma, { a: 0 }).tokenTable).toMatchObject({ leadingCount: 0 });
    expect(textOf(sequence(REPLACE, { type: 'Fuse' }), '<0xE2>')).toBe('<0xE2>');
  });

  it('reads the Metaspace decoder in its old and new form', () => {
    const first = (decoder: JsonObject): string =>
      tokenizer(decoder, { '\u2581\u2581a\u2581b': 0 }).decode([0, 0]);
    expect(textOf({ type: 'Metaspace' }, 'a\u2581b')).toBe('a b');
    expect(textOf({ type: 'Metaspace', replacement: '_' }, 'a_b\u2581')).toBe('a b\u2581');
    // The first token loses all its marks.
    expect(first({ type: 'Metaspace' })).toBe('ab  a b');
    expect(first({ type: 'Metaspace', prepend_scheme: 'first' })).toBe('ab  a b');
    expect(first({ type: 'Metaspace', prepend_scheme: 'never' })).toBe('  a b  a b');
    expect(first({ type: 'Metaspace', add_prefix_space: false })).toBe('  a b  a b');
  });

  it('strips per token before the tokens are joined', () => {
    const decoder = sequence({ type: 'Strip', content: '_', start: 1, stop: 2 });
    expect(['__a___', '_', '', 'b'].map((token) => textOf(decoder, `${token}`))).toEqual([
      '_a_',
      '',
      '',
      'b',
    ]);
  });

  it('replaces by expression', () => {
    const decoder = sequence({ type: 'Replace', pattern: { Regex: '[_\u2581]+' }, content: '$&' });
    expect(textOf(decoder, 'a__\u2581b')).toBe('a$&b');
  });
});

describe('word pieces', () => {
  it('join with their prefix, else with a space, and clean up', () => {
    const decoder = { type: 'WordPiece', prefix: '##', cleanup: true };
    const made = tokenizer(decoder, { '##ing': 0, walk: 1, '.': 2, "'s": 3 });
    expect(made.decode([1, 0, 2, 1, 3])).toBe("walking. walk's");
    expect(made.decode([0, 1])).toBe('##ing walk');
    const plain = tokenizer({ ...decoder, cleanup: false }, { walk: 0, '.': 1 });
    expect(plain.decode([0, 1])).toBe('walk .');
  });
});

describe('decoders that have no bytes per token', () => {
  it.each([
    ['none', null],
    ['BPEDecoder', { type: 'BPEDecoder', suffix: '</w>' }],
    ['CTC', { type: 'CTC' }],
    ['an unknown step', sequence(REPLACE, { type: 'Nope' })],
    ['ByteLevel in the joined text', sequence({ type: 'Fuse' }, BYTE_LEVEL)],
    ['a replacement in the joined text', sequence({ type: 'Fuse' }, REPLACE)],
    [
      'a strip at the end of the text',
      sequence({ type: 'Fuse' }, { type: 'Strip', content: ' ', start: 0, stop: 1 }),
    ],
    [
      'a strip of a wide character',
      sequence({ type: 'Fuse' }, { type: 'Strip', content: '\u2581', start: 1, stop: 0 }),
    ],
    [
      'two leading rules',
      sequence({ type: 'Metaspace' }, { type: 'Fuse' }, { type: 'Strip', content: ' ', start: 1 }),
    ],
    ['a bad expression', { type: 'Replace', pattern: { Regex: '(' }, content: '' }],
    ['no pattern', { type: 'Replace', content: '' }],
    ['no steps', { type: 'Sequence' }],
  ] as [string, JsonObject | null][])('refuses %s', (_what, decoder) => {
    let error: unknown;
    try {
      tokenizer(decoder, { a: 0 }).tokenTable;
    } catch (caught) {
      error = caught;
    }
    expect(error).toMatchObject({ name: 'KvantError', code: 'tokenizer-unsupported', kind: 'unsupported' });
  });
});
