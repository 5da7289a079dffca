/** Which tokens a grammar forces, by the tokenizers of three kinds: they stand whatever comes behind them. */
import { describe, expect, it } from 'vitest';
import { ModelText } from '../../src/engine/model-text.js';
import { runSpeller, runs as runsTask, tokenTries } from '../../src/engine/texts/grammar-task.js';
import { Watch } from '../../src/engine/texts/text-task.js';
import { compileAsk, type GrammarAsk } from '../../src/grammar/ask.js';
import { runFrom } from '../../src/grammar/forced-runs.js';
import { forcedTexts } from '../../src/grammar/forced-text.js';
import { seeded } from './core-harness.js';

const FOLDERS = [
  'models/demo-text',
  'test/fixtures/text/byte-level',
  'test/fixtures/text/sentencepiece',
  'test/fixtures/text/metaspace',
];
const PIECES = [
  '"',
  ' ',
  ':',
  ',',
  '}',
  '\n',
  'a',
  'ing',
  's',
  'Zz',
  'é',
  'ß',
  '日本',
  '😀',
  '12',
  '.5',
  '_x',
  "'s",
  '  ',
  '-',
  '\\',
];
const KEYS = [
  'name',
  'temperature_celsius',
  'größenordnung',
  '説明',
  'a b  c',
  "it's",
  'x1234567',
  'don"t',
  'mood😀',
  'HTTPServer',
];

const schema = (value: unknown): GrammarAsk => ({
  kind: 'schema',
  schema: JSON.stringify(value),
  strict: false,
});
const ASKS: readonly GrammarAsk[] = [
  schema({
    type: 'object',
    properties: Object.fromEntries(KEYS.map((key) => [key, { type: 'number' }])),
    required: KEYS,
    additionalProperties: false,
  }),
  schema({ enum: [...KEYS, 'temperature_kelvin', 'the quick brown fox jumps over the lazy dog'.repeat(9)] }),
  { kind: 'choice', choices: ['yes, of course', 'yes, but not now', '  indented text', '1234567', '12345'] },
  {
    kind: 'grammar',
    grammar: 'root ::= "begin the " inner " and end it 99" [0-9]\ninner ::= "inner part" | "other part"',
  },
  { kind: 'regex', pattern: 'The answer to everything is \\d+ and nothing else\\.' },
];

describe.each(FOLDERS)('forced tokens of %s', (folder) => {
  it('are how the tokenizer writes the text, whatever comes behind it, and leave the rest to be drawn', async () => {
    const model = await ModelText.forTasks({ kind: 'folder', path: folder });
    const { trie } = tokenTries(model.tokenTable).all;
    const speller = runSpeller(model);
    const random = seeded(7);
    const any = (): string => PIECES[Math.floor(random() * PIECES.length)]!;
    let found = 0;
    for (const ask of ASKS) {
      const tables = compileAsk(ask);
      const { value: runs } = runsTask(model, { tables, trie }, new Watch());
      for (const { bytes, states } of forcedTexts(tables)) {
        const run = runFrom(runs, states[0]!);
        if (run === null) continue;
        found += run.length;
        const text = new TextDecoder().decode(bytes);
        const written = Buffer.concat([...run].map((id) => speller.bytesOf(id)));
        expect(Buffer.from(bytes).subarray(0, written.length)).toEqual(written);
        for (let i = 0; i < 100; i++) {
          const whole = speller.spell(
            text + Array.from({ length: 1 + Math.floor(random() * 4) }, any).join(''),
          );
          if (whole !== null)
            expect([text, Array.from(whole).slice(0, run.length)]).toEqual([text, [...run]]);
        }
        // From where a token of it ends the rest of it comes.
        let at = 0;
        for (let i = 0; i + 2 <= run.length; i++) {
          if (states[at]! >= 0) expect([...runFrom(runs, states[at]!)!]).toEqual([...run.subarray(i)]);
          at += speller.bytesOf(run[i]!).length;
        }
      }
    }
    expect(found).toBeGreaterThan(40);
  });
});
