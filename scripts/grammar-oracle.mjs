// Compares grammars of JSON schemas with llguidance's, text by text. Needs Python with `llguidance`, on the developer's side only.
//   npm run -s build && node scripts/grammar-oracle.mjs FOLDER [--python PATH] [--count N] [--differences]
// FOLDER holds files `{"schema": …, "tests": [{"data": …, "valid": …}]}`, as MaskBench's `maskbench/data`. Every value is written compactly,
// its keys as they come and in the schema's order; one of the two has to be allowed. N of them are read (400), from all over the list. Printed: how many schemas each refuses, how many
// of the tests each gets wrong, and on how many they differ where both take the schema. `--differences` lists these.
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { compileAsk } from '../dist/grammar/ask.js';
import { Matcher } from '../dist/grammar/matcher.js';

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    python: { type: 'string', default: 'python3' },
    count: { type: 'string', default: '400' },
    differences: { type: 'boolean', default: false },
  },
});
const [folder] = positionals;
if (folder === undefined)
  throw new Error(
    'usage: node scripts/grammar-oracle.mjs FOLDER [--python PATH] [--count N] [--differences]',
  );

/** Reads a line for each schema from stdin, and writes one: null for a schema that is refused, else what each text is. */
const ORACLE = `
import json, sys
from llguidance import LLMatcher, LLTokenizer
tokenizer = LLTokenizer("byte")
for line in sys.stdin:
    schema, tests = json.loads(line)
    try:
        grammar = LLMatcher.grammar_from_json_schema(schema)
    except Exception:
        print("null"); continue
    def allows(text):
        matcher = LLMatcher(tokenizer, grammar, log_level=0)
        if matcher.is_error():
            return None
        return bool(matcher.consume_tokens(tokenizer.tokenize_bytes(text.encode()))) and matcher.is_accepting()
    found = [[allows(text) for text in texts] for texts in tests]
    print("null" if any(one is None for texts in found for one in texts) else json.dumps([any(texts) for texts in found]))
`;

/** Names in the order in which a schema first has them. */
function namesIn(schema, found = new Set()) {
  if (typeof schema !== 'object' || schema === null) return found;
  if (typeof schema.properties === 'object' && schema.properties !== null && !Array.isArray(schema))
    for (const name of Object.keys(schema.properties)) found.add(name);
  for (const inner of Object.values(schema)) namesIn(inner, found);
  return found;
}

function ordered(value, names) {
  if (Array.isArray(value)) return value.map((item) => ordered(item, names));
  if (typeof value !== 'object' || value === null) return value;
  const own = Object.keys(value);
  const order = [
    ...[...names].filter((name) => own.includes(name)),
    ...own.filter((name) => !names.has(name)),
  ];
  return Object.fromEntries(order.map((name) => [name, ordered(value[name], names)]));
}

function verdicts(schema, tests) {
  let matcher = null;
  try {
    matcher = new Matcher(compileAsk({ kind: 'schema', schema: JSON.stringify(schema), strict: false }));
  } catch (error) {
    if (error.code === undefined) throw error;
    // Nothing can be written: nothing is allowed.
    if (error.code !== 'invalid-grammar') return null;
  }
  const allows = (text) => {
    let state = matcher?.start ?? null;
    for (const byte of Buffer.from(text)) {
      // As before each mask.
      matcher?.makeRoom();
      state = state === null ? null : matcher.step(state, byte);
    }
    return state?.done ?? false;
  };
  return tests.map((texts) => texts.some(allows));
}

const all = readdirSync(folder)
  .filter((name) => name.endsWith('.json'))
  .sort();
const count = Math.min(Number(options.count), all.length);
const files = Array.from({ length: count }, (_, i) => all[Math.floor((i * all.length) / count)]);
const cases = files.map((name) => {
  const { schema, tests } = JSON.parse(readFileSync(join(folder, name), 'utf8'));
  const names = namesIn(schema);
  const texts = tests.map(({ data }) => [JSON.stringify(ordered(data, names)), JSON.stringify(data)]);
  return { name, schema, texts, valid: tests.map((test) => test.valid) };
});
const { status, stdout, stderr, error } = spawnSync(options.python, ['-c', ORACLE], {
  input: cases.map(({ schema, texts }) => JSON.stringify([JSON.stringify(schema), texts])).join('\n'),
  encoding: 'utf8',
  maxBuffer: 2 ** 28,
});
if (status !== 0)
  throw new Error(`${options.python} with llguidance did not run: ${error?.message ?? stderr.slice(-2000)}`);
const oracle = stdout
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line));

const wrong = (found, { valid }) => ({
  letIn: found.filter((allowed, i) => allowed && !valid[i]).length,
  keptOut: found.filter((allowed, i) => !allowed && valid[i]).length,
});
const sums = {
  kvant: { refused: 0, letIn: 0, keptOut: 0 },
  llguidance: { refused: 0, letIn: 0, keptOut: 0 },
};
let differ = 0;
let both = 0;
cases.forEach((one, i) => {
  const found = { kvant: verdicts(one.schema, one.texts), llguidance: oracle[i] };
  for (const [name, own] of Object.entries(found)) {
    if (own === null) sums[name].refused++;
    else for (const [what, count] of Object.entries(wrong(own, one))) sums[name][what] += count;
  }
  const { kvant, llguidance } = found;
  if (kvant === null || llguidance === null) return;
  kvant.forEach((allowed, j) => {
    both++;
    if (allowed === llguidance[j]) return;
    differ++;
    if (options.differences)
      console.log(
        `${one.name}: kvant ${allowed ? 'allows' : 'rules out'} ${one.valid[j] ? 'valid' : 'invalid'} ${one.texts[j][0].slice(0, 200)}`,
      );
  });
});
console.log(`${cases.length} schemas`);
for (const [name, { refused, letIn, keptOut }] of Object.entries(sums))
  console.log(
    `${name}: ${refused} refused, ${letIn} invalid values let in, ${keptOut} valid values ruled out`,
  );
console.log(`${differ} of ${both} verdicts differ where both take the schema`);
if (sums.kvant.letIn > 0) process.exitCode = 1;
