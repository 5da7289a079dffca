/** The form of answers, in the words of OpenAI (`response_format`), vLLM (`structured_outputs`) and llama.cpp (`json_schema`, `grammar`). */
import type { StructuredOutput } from '../../engine/types.js';
import { KvantError } from '../../errors.js';
import { shown } from '../../printable.js';
import { type Body, refuseUnknown } from '../request-body.js';

/** Members of `response_format` and what is in it. */
const RESPONSE_FORMAT = new Set(['type', 'json_schema', 'schema']);
const TAGS = ['structures', 'triggers', 'format'];
const TAG_FORMAT = new Set([...RESPONSE_FORMAT, ...TAGS]);
const TYPES: readonly string[] = ['text', 'json_object', 'json_schema', 'structural_tag'];
/** Forms that are asked for elsewhere. */
const OTHER_TYPES = ['regex', 'choice', 'grammar'] as const;
const JSON_SCHEMA = new Set(['name', 'description', 'schema', 'strict']);
const STRUCTURED_OUTPUTS = new Set(['json', 'json_object', 'regex', 'choice', 'grammar', 'structural_tag']);

/** vLLM's settings, and the values that ask for what happens anyway. There is one engine of grammars, so no other that could be fallen back to. */
const SETTINGS: Readonly<Record<string, (value: unknown) => boolean>> = {
  disable_fallback: (value) => typeof value === 'boolean',
  disable_any_whitespace: (value) => value === false,
  disable_additional_properties: (value) => value === false,
};

/** A form, and the field of the body that asks for it. */
export interface AskedForm {
  readonly form: StructuredOutput;
  readonly formField: string | null;
}

/** Errors: `invalid-parameter`, `unknown-parameter`, `unsupported-parameter`, `conflicting-parameters` (400), naming the field. */
export function structuredOutput(body: Body): AskedForm {
  const found: [field: string, form: StructuredOutput][] = [];
  const add = (field: string, form: StructuredOutput | null): void => {
    if (form !== null) found.push([field, form]);
  };
  add('response_format', responseFormat(body.response_format));
  add('structured_outputs', structuredOutputs(body.structured_outputs));
  if (body.json_schema != null) add('json_schema', { schema: schemaAt('json_schema', body.json_schema) });
  if (body.grammar != null && body.grammar !== '')
    add('grammar', { grammar: grammarAt('grammar', body.grammar) });
  const [first, second] = found;
  if (first === undefined) return { form: {}, formField: null };
  if (second !== undefined)
    throw new KvantError(
      'conflicting-parameters',
      `\`${first[0]}\` and \`${second[0]}\` both say what the answer shall look like.`,
      {
        kind: 'invalid-request',
        where: second[0],
        fix: 'Send one of them.',
      },
    );
  return { form: first[1], formField: first[0] };
}

function responseFormat(value: unknown): StructuredOutput | null {
  if (value == null) return null;
  const format = objectAt('response_format', value);
  const { type, json_schema: named, schema } = format;
  // The type first: what stands beside it belongs to it.
  if (typeof type !== 'string' || !TYPES.includes(type)) throw unknownType(type);
  const names = type === 'structural_tag' ? TAG_FORMAT : RESPONSE_FORMAT;
  refuseUnknown(format, { names, prefix: 'response_format.' });
  switch (type) {
    case 'text':
      refuseBeside('text', format, ['json_schema', 'schema']);
      return null;
    case 'json_object':
      refuseBeside('json_object', format, ['json_schema']);
      return schema == null ? { json: true } : { schema: schemaAt('response_format.schema', schema) };
    case 'json_schema': {
      refuseBeside('json_schema', format, ['schema']);
      const inner = objectAt('response_format.json_schema', named);
      refuseUnknown(inner, { names: JSON_SCHEMA, prefix: 'response_format.json_schema.' });
      const at = (name: string): string => `response_format.json_schema.${name}`;
      const { name, description, strict } = inner;
      if (name != null && !(typeof name === 'string' && /^[A-Za-z0-9_-]{1,64}$/.test(name)))
        throw takes(at('name'), '1 to 64 letters, digits, _ or -');
      if (description != null && typeof description !== 'string') throw takes(at('description'), 'a text');
      if (strict != null && typeof strict !== 'boolean') throw takes(at('strict'), 'true or false');
      const own = schemaAt(at('schema'), inner.schema);
      return { schema: own, ...(strict === true ? { strictSchema: true } : {}) };
    }
    default:
      refuseBeside('structural_tag', format, ['json_schema', 'schema']);
      return {
        structuralTag: Object.fromEntries(Object.entries(format).filter(([, inner]) => inner !== null)),
      };
  }
}

function unknownType(type: unknown): KvantError {
  const where = 'response_format.type';
  const other = OTHER_TYPES.find((one) => one === type);
  const wanted = '"text", "json_object", "json_schema" or "structural_tag"';
  return new KvantError('invalid-parameter', `\`${where}\` takes ${wanted}.`, {
    kind: 'invalid-request',
    where: 'response_format',
    fix: other === undefined ? `Send ${wanted}.` : `Write \`structured_outputs\`: {"${other}": …}.`,
  });
}

function unsupportedSetting(name: string): KvantError {
  const where = `structured_outputs.${name}`;
  return new KvantError('unsupported-parameter', `\`${where}\` is not supported with this value.`, {
    kind: 'unsupported',
    where,
    fix: 'Leave it out.',
  });
}

function structuredOutputs(value: unknown): StructuredOutput | null {
  if (value == null) return null;
  const all = objectAt('structured_outputs', value);
  const given = Object.fromEntries(Object.entries(all).filter(([name]) => !Object.hasOwn(SETTINGS, name)));
  for (const [name, asksNothing] of Object.entries(SETTINGS))
    if (all[name] != null && !asksNothing(all[name])) throw unsupportedSetting(name);
  refuseUnknown(given, { names: STRUCTURED_OUTPUTS, prefix: 'structured_outputs.' });
  const names = Object.keys(given).filter((name) => given[name] != null && given[name] !== false);
  const [name, other] = names;
  if (other !== undefined)
    throw new KvantError(
      'conflicting-parameters',
      `\`structured_outputs.${name}\` and \`structured_outputs.${other}\` do not go together.`,
      {
        kind: 'invalid-request',
        where: 'structured_outputs',
        fix: 'Send one of them.',
      },
    );
  const at = `structured_outputs.${name}`;
  switch (name) {
    case undefined:
      return null;
    case 'json':
      return { schema: schemaAt(at, given.json) };
    case 'json_object':
      if (given.json_object !== true) throw takes(at, 'true or false');
      return { json: true };
    case 'grammar':
      return { grammar: grammarAt(at, given.grammar) };
    case 'structural_tag':
      return { structuralTag: objectAt(at, parsed(at, given.structural_tag, 'a structural tag')) };
    case 'regex':
      if (typeof given.regex !== 'string') throw takes(at, 'a pattern');
      return { regex: given.regex };
    default: {
      const { choice } = given;
      if (
        !Array.isArray(choice) ||
        choice.length === 0 ||
        !choice.every((one) => typeof one === 'string' && one !== '')
      )
        throw takes(at, 'a list of texts, none of them empty');
      return { choice: choice as string[] };
    }
  }
}

function grammarAt(where: string, value: unknown): string {
  if (typeof value === 'string') return value;
  throw takes(where, 'a grammar');
}

/** A schema, or its JSON text, as some clients send it. */
function schemaAt(where: string, value: unknown): Readonly<Record<string, unknown>> | boolean {
  const schema = parsed(where, value, 'a JSON schema');
  if (
    typeof schema === 'boolean' ||
    (typeof schema === 'object' && schema !== null && !Array.isArray(schema))
  )
    return schema as Readonly<Record<string, unknown>> | boolean;
  throw takes(where, 'a JSON schema');
}

/** A value, or what its JSON text says. */
function parsed(where: string, value: unknown, wanted: string): unknown {
  if (typeof value !== 'string') return value;
  try {
    return JSON.parse(value) as unknown;
  } catch {
    throw takes(where, wanted);
  }
}

function objectAt(where: string, value: unknown): Body {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Body;
  throw takes(where, 'an object');
}

function refuseBeside(type: string, format: Body, names: readonly string[]): void {
  for (const name of names) {
    if (format[name] == null) continue;
    const where = `response_format.${name}`;
    throw new KvantError('invalid-parameter', `\`${where}\` does not go with the type "${shown(type)}".`, {
      kind: 'invalid-request',
      where,
      fix:
        name === 'json_schema'
          ? 'Write "type": "json_schema".'
          : 'Write it as `json_schema`: {"name": …, "schema": …}.',
    });
  }
}

function takes(field: string, wanted: string): KvantError {
  return new KvantError('invalid-parameter', `\`${field}\` takes ${wanted}.`, {
    kind: 'invalid-request',
    where: field,
    fix: `Send ${wanted}.`,
  });
}
