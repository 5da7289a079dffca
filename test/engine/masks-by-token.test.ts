/** Masks of a real tokenizer against each token read by itself, where walks leave out what need not be walked. */
import { describe, expect, it } from 'vitest';
import { ModelText } from '../../src/engine/model-text.js';
import { tokenTries } from '../../src/engine/texts/grammar-task.js';
import { compileAsk, type GrammarAsk } from '../../src/grammar/ask.js';
import { GrammarMasks } from '../../src/grammar/masks.js';
import { Matcher, type ParserState } from '../../src/grammar/matcher.js';
import { TOKEN_KNOWN, TOKEN_SPECIAL, tokenBytes } from '../../src/text/token-bytes.js';
import { seeded } from './core-harness.js';

const schema = (value: unknown): GrammarAsk => ({
  kind: 'schema',
  schema: JSON.stringify(value),
  strict: false,
});
const ASKS: Record<string, GrammarAsk> = {
  letters: { kind: 'regex', pattern: '[a-z]+' },
  words: { kind: 'regex', pattern: '([A-Za-z0-9_]+[ .:/-]?)*!' },
  'all but some signs': { kind: 'regex', pattern: '[^"\\\\x@]*@[a-f0-9]*' },
  'letters of a string': schema({ type: 'string', pattern: '^[a-zA-Z_][\\w-]*$' }),
  'a host in a string': schema({
    type: 'string',
    pattern: '^(https?://)?([\\da-z.-]+)\\.([a-z.]{2,6})([/\\w .-]*)*/?$',
  }),
  'strings without a word': schema({ type: 'string', not: { pattern: 'temperature' } }),
  'names that match or do not': schema({
    type: 'object',
    patternProperties: { 'after_[a-e]+': { type: 'integer' }, '^x': { type: 'boolean' } },
    additionalProperties: { type: 'null' },
  }),
  'names that are listed': schema({
    type: 'object',
    properties: Object.fromEntries(
      ['one', 'once', 'other', 'the', 'ß', 'then'].map((name) => [name, { type: 'integer' }]),
    ),
    additionalProperties: { type: 'string', maxLength: 9 },
  }),
};

describe('masks of a real tokenizer', () => {
  it.each(Object.keys(ASKS))('allow the tokens that can be read, and no others: %s', async (name) => {
    const model = await ModelText.forTasks({ kind: 'folder', path: 'models/demo-text' });
    const table = model.tokenTable!;
    const { all } = tokenTries(table);
    const matcher = new Matcher(compileAsk(ASKS[name]!));
    const usable = Array.from({ length: table.size }, (_, id) => id).filter(
      (id) =>
        (table.flags[id]! & (TOKEN_KNOWN | TOKEN_SPECIAL)) === TOKEN_KNOWN &&
        tokenBytes(table, id).length > 0,
    );
    const random = seeded(3);
    let looked = 0;
    for (let answer = 0; answer < 4; answer++) {
      const masks = new GrammarMasks(all, [], table.size);
      let state: ParserState | null = matcher.start;
      for (let n = 0; n < 12 && state !== null; n++) {
        const mask = masks.mask(matcher, state);
        const before: ParserState = state;
        const read = usable.filter((id) => matcher.advance(before, id, tokenBytes(table, id)) !== null);
        const allowed = usable.filter((id) => ((mask[id >> 5]! >>> (id & 31)) & 1) === 1);
        expect(allowed).toEqual(read);
        if (read.length === 0) break;
        looked++;
        const id = read[Math.floor(random() * read.length)]!;
        state = matcher.advance(before, id, tokenBytes(table, id));
      }
    }
    expect(looked).toBeGreaterThan(15);
  });
});
