/** What a request says that its answer shall look like, checked as far as that takes no time. */

import { KvantError } from '../errors.js';
import type { GrammarAsk } from '../grammar/ask.js';
import type { StructuredOutput } from './types.js';

/** Fields of a request, of which it may have one. */
const STRUCTURED_FIELDS = ['json', 'schema', 'regex', 'choice', 'grammar', 'structuralTag'] as const;
export const STRUCTURED_REQUEST_FIELDS: readonly string[] = [...STRUCTURED_FIELDS, 'strictSchema'];

/** Null where the answer is free. Errors: `invalid-parameter`, `conflicting-parameters`. */
export function readStructuredOutput(
  request: StructuredOutput & {
    readonly ignoreEos?: boolean | null | undefined;
    readonly minTokens?: number | null | undefined;
  },
): GrammarAsk | null {
  const { json, schema, regex, choice, grammar, structuralTag, strictSchema } = request;
  if (json !== undefined && typeof json !== 'boolean') throw takes('json', 'true or false');
  if (strictSchema !== undefined && typeof strictSchema !== 'boolean')
    throw takes('strictSchema', 'true or false');
  // `schema: false` is a schema, of nothing.
  const isGiven = (name: (typeof STRUCTURED_FIELDS)[number]): boolean =>
    request[name] !== undefined && !(name === 'json' && json === false);
  const given = STRUCTURED_FIELDS.filter(isGiven);
  const [first, second] = given;
  if (first === undefined) return null;
  if (second !== undefined) throw conflict(first, second, `Send one of them.`);
  refuseEndless(request, first);
  if (json === true) return { kind: 'json' };
  if (regex !== undefined) {
    if (typeof regex !== 'string') throw takes('regex', 'a pattern');
    return { kind: 'regex', pattern: regex };
  }
  if (grammar !== undefined) {
    if (typeof grammar !== 'string') throw takes('grammar', 'a grammar');
    return { kind: 'grammar', grammar };
  }
  if (structuralTag !== undefined) {
    if (!isPlainObject(structuralTag)) throw takes('structuralTag', 'a structural tag: an object');
    return { kind: 'tags', tags: jsonText(structuralTag, 'structuralTag') };
  }
  if (choice !== undefined) {
    const isList = Array.isArray(choice) && choice.every((one) => typeof one === 'string' && one !== '');
    if (!isList || choice.length === 0) throw takes('choice', 'a list of texts, none of them empty');
    return { kind: 'choice', choices: [...choice] };
  }
  if (typeof schema !== 'boolean' && !isPlainObject(schema))
    throw takes('schema', 'a JSON schema: an object');
  return { kind: 'schema', schema: jsonText(schema, 'schema'), strict: strictSchema ?? false };
}

/** An answer of a given form ends where it is complete, and nowhere else. Errors: `conflicting-parameters`. */
export function refuseEndless(
  request: {
    readonly ignoreEos?: boolean | null | undefined;
    readonly minTokens?: number | null | undefined;
  },
  first = 'toolChoice',
): void {
  if (request.ignoreEos === true)
    throw conflict(
      first,
      'ignoreEos',
      'An answer of a given form ends where it is complete: leave `ignoreEos` out.',
    );
  if ((request.minTokens ?? 0) > 0)
    throw conflict(
      first,
      'minTokens',
      'Say in the schema or the pattern how much there shall be: leave `minTokens` out.',
    );
}

const isPlainObject = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function jsonText(value: unknown, where: 'schema' | 'structuralTag'): string {
  try {
    return JSON.stringify(value);
  } catch (cause) {
    const message = `\`${where}\` is no JSON: it holds itself, or what JSON has no form for.`;
    const options = {
      kind: 'invalid-request',
      where,
      fix: 'Send plain JSON; what is within itself is written with "$ref".',
      cause,
    } as const;
    throw where === 'schema'
      ? new KvantError('invalid-schema', message, options)
      : new KvantError('invalid-structural-tag', message, options);
  }
}

function takes(where: string, wanted: string): KvantError {
  return new KvantError('invalid-parameter', `\`${where}\` takes ${wanted}.`, {
    kind: 'invalid-request',
    where,
    fix: `Send ${wanted}, or leave \`${where}\` out.`,
  });
}

function conflict(where: string, other: string, fix: string): KvantError {
  return new KvantError('conflicting-parameters', `\`${where}\` and \`${other}\` do not go together.`, {
    kind: 'invalid-request',
    where: other,
    fix,
  });
}
