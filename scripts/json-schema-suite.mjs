// Reads the JSON-Schema-Test-Suite (draft 2020-12) as grammars: each group is refused, or every verdict has to be right.
//   npm run -s build && node scripts/json-schema-suite.mjs FOLDER [--refused]
// FOLDER is a checkout of github.com/json-schema-org/JSON-Schema-Test-Suite. Of the orders that the keys of a value may have, one has to
// be allowed. `--refused` lists what is refused and why.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { compileAsk } from '../dist/grammar/ask.js';
import { Matcher } from '../dist/grammar/matcher.js';

const [folder] = process.argv.slice(2);
if (folder === undefined) throw new Error('usage: node scripts/json-schema-suite.mjs FOLDER [--refused]');
const tests = join(folder, 'tests', 'draft2020-12');

/** JSON texts of a value, its keys in every order. */
function* texts(value) {
  if (Array.isArray(value)) {
    for (const items of choices(value.map((item) => [...texts(item)]))) yield `[${items.join()}]`;
  } else if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value).map(([name, inner]) =>
      [...texts(inner)].map((text) => `${JSON.stringify(name)}:${text}`),
    );
    for (const order of orders(members)) for (const items of choices(order)) yield `{${items.join()}}`;
  } else yield JSON.stringify(value);
}

function* choices([first, ...rest]) {
  if (first === undefined) yield [];
  else for (const one of first) for (const others of choices(rest)) yield [one, ...others];
}

/** Of long lists only the one that they have. */
function* orders(list) {
  if (list.length === 0 || list.length > 6) yield list;
  else
    for (let i = 0; i < list.length; i++)
      for (const rest of orders([...list.slice(0, i), ...list.slice(i + 1)])) yield [list[i], ...rest];
}

function allows(matcher, text) {
  let state = matcher.start;
  for (const byte of Buffer.from(text)) state = state === null ? null : matcher.step(state, byte);
  return state?.done ?? false;
}

/** Null where nothing can be written. */
function matcherOf(schema) {
  try {
    return new Matcher(compileAsk({ kind: 'schema', schema: JSON.stringify(schema), strict: false }));
  } catch (error) {
    if (error.code === 'invalid-grammar') return null;
    throw error;
  }
}

for (const part of ['', 'optional', 'optional/format']) {
  // Of formats and of large numbers less may be taken than there is.
  const mayBeNarrow = part !== '';
  let [right, narrow, wrong, refused] = [0, 0, 0, 0];
  for (const file of readdirSync(join(tests, part)).filter((name) => name.endsWith('.json')))
    for (const group of JSON.parse(readFileSync(join(tests, part, file), 'utf8'))) {
      const name = `${join(part, file)}: ${group.description}`;
      let matcher;
      try {
        matcher = matcherOf(group.schema);
      } catch (error) {
        if (error.code === undefined) throw error;
        refused++;
        if (process.argv.includes('--refused')) console.log(`refused  ${name}: ${error.message}`);
        continue;
      }
      const bad = group.tests.filter(
        ({ data, valid, description }) =>
          // Formats are enforced: what is of none is ruled out.
          !(part === '' && file === 'format.json' && description.endsWith('by default')) &&
          valid !== (matcher !== null && [...texts(data)].some((text) => allows(matcher, text))),
      );
      for (const { description, valid } of bad)
        console.log(
          `${valid && mayBeNarrow ? 'narrow  ' : 'wrong   '} ${name}: ${description} (should be ${valid ? 'allowed' : 'ruled out'})`,
        );
      if (bad.length === 0) right++;
      else if (mayBeNarrow && bad.every(({ valid }) => valid)) narrow++;
      else wrong++;
    }
  console.log(
    `${part || 'required'}: ${right} right, ${narrow} narrower, ${wrong} wrong, ${refused} refused`,
  );
}
