// How long grammars and masks take on a large vocabulary: `npm run -s build && node bench/grammar-masks.mjs [--tokens 151936]`.
// Times are the processor's (getrusage), so that what else the machine does counts little. Prints a table in Markdown.
import { compileAsk } from '../dist/grammar/ask.js';
import { GrammarMasks } from '../dist/grammar/masks.js';
import { Matcher } from '../dist/grammar/matcher.js';
import { prepareTokens } from '../dist/grammar/token-set.js';

const at = process.argv.indexOf('--tokens');
const size = at < 0 ? 151_936 : Number(process.argv[at + 1]);

/** Words with and without a space, in three alphabets, numbers, and pieces of JSON and code, as byte-level vocabularies have them. */
function vocabulary(count) {
  let seed = 1;
  const below = (n) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return Math.floor((seed / 2 ** 32) * n);
  };
  const one = (list) => list[below(list.length)];
  const tokens = new Map();
  for (let byte = 0; byte < 256; byte++) tokens.set(String(byte), Buffer.from([byte]));
  const add = (text) => tokens.set(`t${text}`, Buffer.from(text));
  for (const text of [
    '{"',
    '"}',
    '":',
    '": ',
    '", "',
    '",',
    '"]',
    '}}',
    '},',
    ']}',
    '[{"',
    '":"',
    '": "',
    'true',
    'false',
    'null',
    '\n  ',
    '\n    ',
  ])
    add(text);
  for (let n = 1; n < 128; n++) add(' '.repeat(n));
  const letters = 'etaoinshrdlucmfwypvbgkqjxz';
  const cjk = () => String.fromCodePoint(0x4e00 + below(6000));
  const cyrillic = () => String.fromCodePoint(0x430 + below(32));
  while (tokens.size < count) {
    const kind = below(20);
    const length = 1 + below(4) + below(6);
    let word = '';
    for (let i = 0; i < length; i++)
      word +=
        kind < 13
          ? letters[Math.min(below(26), below(26))]
          : kind < 16
            ? cyrillic()
            : kind < 18
              ? i < 3
                ? cjk()
                : ''
              : one(['.', ',', '"', "'", '(', ')', '=', '/', '\\', '<', '>', ':', ';', '_', 'a', 'b']);
    if (below(3) === 0) word = word[0].toUpperCase() + word.slice(1);
    if (below(2) === 0) word = ` ${word}`;
    add(word);
  }
  return [...tokens.values()].slice(0, count);
}

const tokens = vocabulary(size);
const offsets = new Uint32Array(size + 1);
tokens.forEach((token, id) => {
  offsets[id + 1] = offsets[id] + token.length;
});
const data = new Uint8Array(Buffer.concat(tokens));
const ids = new Map();
tokens.forEach((token, id) => {
  ids.set(token.toString('latin1'), id);
});
const longest = tokens.reduce((most, { length }) => Math.max(most, length), 0);

const clock = () => {
  const { user, system } = process.cpuUsage();
  return user + system;
};
const timed = (run) => {
  const from = clock();
  const value = run();
  return [clock() - from, value];
};

const person = {
  type: 'object',
  properties: { name: { type: 'string' }, age: { type: 'integer' }, email: { type: 'string' } },
  required: ['name', 'age'],
  additionalProperties: false,
};
const nested = {
  type: 'object',
  properties: {
    title: { type: 'string' },
    status: { enum: ['open', 'closed', 'waiting'] },
    people: { type: 'array', items: { $ref: '#/$defs/person' } },
    score: { anyOf: [{ type: 'number' }, { type: 'null' }] },
  },
  required: ['title', 'status', 'people', 'score'],
  additionalProperties: false,
  $defs: { person },
};
const large = {
  type: 'object',
  properties: Object.fromEntries(
    Array.from({ length: 33 }, (_, i) => [
      `property_${i}`,
      [
        { type: 'string', description: 'A text of which the description takes some room in the schema.' },
        { type: 'integer' },
        person,
      ][i % 3 === 2 && i > 20 ? 1 : i % 3],
    ]),
  ),
  required: ['property_0'],
};
const cases = [
  ['simple', person, '{"name": "Jürgen Müller, \\"Jimmy\\"", "age": 42, "email": "a@example.com"}'],
  [
    'nested',
    nested,
    '{"title": "A list of people", "status": "waiting", "people": [{"name": "Ann", "age": 3}, {"name": "Bob FloatStart", "age": 77}], "score": 12.5}',
  ],
  ['large', large, '{"property_0": "some text", "property_3": "more of it", "property_30": "end"}'],
  ['any JSON', {}, '{"a": [1, 2.5, {"b": "text of some words", "c": null}], "d": {"e": {"f": [[], {}]}}}'],
  ['bounded', { type: 'string', maxLength: 1000 }, `"${'many words of text '.repeat(12)}"`],
  ['pattern', { type: 'string', pattern: '^[a-z]+@[a-z]+\\.[a-z]{2,4}$' }, '"somebody@example.com"'],
];

const [trieUs, trie] = timed(() => prepareTokens({ data, offsets, usable: () => true, size }));
console.log(`${size} tokens, ${trie.trie.byte.length} nodes; tree: ${(trieUs / 1000).toFixed(0)} ms\n`);
console.log(
  '| schema | bytes | states | compiled, ms | masks | first masks p50 / p99 / max, µs | again p50 / p99, µs |',
);
console.log('| --- | --- | --- | --- | --- | --- | --- |');

const shared = new GrammarMasks(trie, [], size);
const percentile = (list, p) =>
  list.toSorted((a, b) => a - b)[Math.min(list.length - 1, Math.floor(p * list.length))];
const every = [];
for (const [name, schema, answer] of cases) {
  const source = JSON.stringify(schema);
  const ask = { kind: 'schema', schema: source, strict: false };
  const [compileUs, tables] = timed(() => compileAsk(ask));
  const walk = () => {
    const matcher = new Matcher(tables);
    const bytes = Buffer.from(answer);
    const times = [];
    let state = matcher.start;
    for (let from = 0; from < bytes.length; ) {
      const began = performance.now();
      const cpu = clock();
      shared.mask(matcher, state);
      times.push(Math.min(clock() - cpu || 1, 1000 * (performance.now() - began)));
      let length = Math.min(longest, bytes.length - from);
      while (!ids.has(bytes.toString('latin1', from, from + length))) length--;
      for (const byte of bytes.subarray(from, from + length)) state = matcher.step(state, byte);
      from += length;
    }
    return times;
  };
  const first = walk();
  every.push(...first);
  // Another request with the same schema: its states are new, what places allow is known.
  if (process.argv.includes('--each')) console.log(first.join(' '));
  const again = walk();
  const f = (value) => value.toFixed(0);
  console.log(
    `| ${name} | ${source.length} | ${tables.ruleOf.length} | ${(compileUs / 1000).toFixed(1)} | ${first.length} | ${f(percentile(first, 0.5))} / ${f(percentile(first, 0.99))} / ${f(Math.max(...first))} | ${f(percentile(again, 0.5))} / ${f(percentile(again, 0.99))} |`,
  );
}
console.log(
  `\nAll first masks: p50 ${percentile(every, 0.5).toFixed(0)} µs, p99 ${percentile(every, 0.99).toFixed(0)} µs.`,
);
