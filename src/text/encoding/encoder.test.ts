import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { readPacked } from '../../../test/fixtures/read-packed.js';
import type { JsonObject } from '../json-file.js';
import { Tokenizer } from '../tokenizer.js';

/** See scripts/fixtures/tokenizer-kinds.py. */
interface Fixture {
  readonly group: number;
  /** The first so many atoms are words and spaces. */
  readonly words: number;
  readonly atoms: readonly string[];
  readonly models: Readonly<Record<string, JsonObject>>;
  readonly variants: Readonly<Record<string, { readonly of: string } & JsonObject>>;
  readonly kinds: Readonly<Record<string, Kind>>;
}
interface Kind {
  readonly definition: JsonObject & { readonly model: string };
  readonly seed: number;
  readonly strings: number;
  readonly digest: string;
  readonly letters: string;
  readonly full: readonly {
    readonly text: string;
    readonly ids: readonly number[];
    /** Without what the post-processor adds, where that differs. */
    readonly plain?: readonly number[];
    readonly decoded?: string;
    /** With special tokens, where that differs. */
    readonly shown?: string;
  }[];
}

const fixture = readPacked('test/fixtures/text/tokenizer-kinds.json.br') as Fixture;
const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';

/** mulberry32, as in the script. */
function random(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) % limit;
  };
}

function strings(seed: number, length: number): string[] {
  const below = random(seed);
  const { atoms, words } = fixture;
  return Array.from({ length }, () => {
    const few = [0, 1, 2].map(() => below(atoms.length));
    const style = below(3);
    let text = '';
    for (let left = below(13); left > 0; left--) {
      if (style === 0) text += atoms[below(atoms.length)]!;
      else if (style === 1) text += atoms[few[below(3)]!]!;
      else text += atoms[below(words)]!;
      if (below(4) === 0) text += ' ';
    }
    return text;
  });
}

function tokenizerOf({ definition }: Kind): Tokenizer {
  const variant = fixture.variants[definition.model];
  const model =
    variant === undefined ? fixture.models[definition.model]! : { ...fixture.models[variant.of], ...variant };
  return Tokenizer.fromJson({ ...definition, model });
}

const sha256 = (text: string): Buffer => createHash('sha256').update(text).digest();

describe('each kind of tokenizer gives the ids and texts of the reference', () => {
  it.each(Object.entries(fixture.kinds))('%s', (_name, kind) => {
    const tokenizer = tokenizerOf(kind);
    const decodes = kind.definition.decoder !== null;
    for (const sample of kind.full) {
      expect([...tokenizer.encode(sample.text)], JSON.stringify(sample.text)).toEqual(sample.ids);
      const plain = [...tokenizer.encode(sample.text, { addSpecialTokens: false })];
      expect(plain, JSON.stringify(sample.text)).toEqual(sample.plain ?? sample.ids);
      if (!decodes) continue;
      expect(tokenizer.decode(sample.ids)).toBe(sample.decoded);
      expect(tokenizer.decode(sample.ids, { skipSpecialTokens: false })).toBe(sample.shown ?? sample.decoded);
    }
    const texts = strings(kind.seed, kind.strings);
    const lines = texts.map((text) => {
      const ids = tokenizer.encode(text);
      const plain =
        kind.definition.post_processor === null ? ids : tokenizer.encode(text, { addSpecialTokens: false });
      const decoded = decodes ? tokenizer.decode(ids) : null;
      const shown = decodes ? tokenizer.decode(ids, { skipSpecialTokens: false }) : null;
      return JSON.stringify([[...ids], [...plain], decoded, shown]);
    });
    // Groups whose letter is another hold the texts that differ; a letter misses one in 64, the digest none.
    const different = [...kind.letters].flatMap((letter, i) => {
      const from = i * fixture.group;
      const group = sha256(lines.slice(from, from + fixture.group).join('\n'));
      return LETTERS[group[0]! % 64] === letter ? [] : [texts.slice(from, from + fixture.group)];
    });
    expect(different).toEqual([]);
    expect(sha256(lines.join('\n')).toString('hex')).toBe(kind.digest);
  });
});
