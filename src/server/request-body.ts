/** Reads request bodies and tells what is wrong with them, field by field. */
import type { z } from 'zod';
import { closestName } from '../did-you-mean.js';
import { KvantError } from '../errors.js';
import { SHOWN_CHARACTERS, shown, shownEnds } from '../printable.js';
import { checkDepth } from '../text/depth.js';
import { mayBeLossy, parseLossless } from '../text/lossless-json.js';
import { bodyText, type ReceivedBody } from './body-text.js';
import { foreignField } from './foreign-fields.js';

export type Body = Readonly<Record<string, unknown>>;

/**
 * The body. `lossless`: members that a chat template prints; there `1.0` is not `1`, an integer has all its digits, and keys keep
 * their order (text/lossless-json.ts).
 *
 * Errors: `invalid-encoding`, `invalid-json`, `invalid-body`, `nested-too-deeply` (400).
 */
export function parseBody(received: ReceivedBody, lossless: readonly string[] = []): Body {
  const text = bodyText(received);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new KvantError('invalid-json', 'The body is not JSON.', {
      kind: 'invalid-request',
      fix: text.length === 0 ? 'Send a JSON object.' : `Check it near: ${shown(text.slice(0, 60))}`,
      cause,
    });
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new KvantError('invalid-body', 'The body is not a JSON object.', {
      kind: 'invalid-request',
      fix: 'Send an object such as {"messages": […]}.',
    });
  }
  const body = value as Body;
  // What is deeper cannot be copied from one thread to another.
  for (const name of Object.keys(body)) checkDepth(body[name], shown(name));
  // The engine's own parser is several times as fast, and most bodies lose nothing by it.
  return lossless.some((name) => mayBeLossy(body[name]))
    ? withMembers(body, readLossless(text), lossless)
    : body;
}

function readLossless(text: string): Body {
  try {
    return parseLossless(text) as Body;
  } catch (cause) {
    // It is JSON: what is refused here is a number too long to be one.
    throw new KvantError(
      'invalid-json',
      `A number in the body cannot be read: ${(cause as Error).message}.`,
      {
        kind: 'invalid-request',
        fix: 'Send a shorter number, or a string.',
        cause,
      },
    );
  }
}

function withMembers(body: Body, from: Body, names: readonly string[]): Body {
  const taken = names.filter((name) => Object.hasOwn(from, name)).map((name) => [name, from[name]]);
  return { ...body, ...Object.fromEntries(taken) };
}

/** Checks the part of the body that a schema names. Errors: `invalid-parameter` (400), `where` naming the field. */
export function parseFields<T extends z.ZodObject>(schema: T, body: Body): z.output<T> {
  const result = schema.safeParse(body);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  const where = issue === undefined || issue.path.length === 0 ? 'body' : shown(pathOf(issue.path));
  const what = shownEnds(issue?.message ?? 'invalid', 2 * SHOWN_CHARACTERS);
  throw new KvantError('invalid-parameter', `\`${where}\`: ${what}.`, {
    kind: 'invalid-request',
    where,
    fix: fixOf(schema, body, issue?.path ?? [], where),
  });
}

/** What is needed is not to be left out: a field that has to be there, and what an entry of a list lacks. */
function fixOf(schema: z.ZodObject, body: Body, path: readonly PropertyKey[], where: string): string {
  const found = path.reduce<unknown>((at, key) => (at as Record<PropertyKey, unknown> | null)?.[key], body);
  if (found === undefined) return `Send \`${where}\`.`;
  const [name] = path;
  const field = typeof name === 'string' ? (schema.shape[name] as z.ZodType | undefined) : undefined;
  const isNeeded = field?.safeParse(undefined).success !== true;
  const isEntry = path.some((key) => typeof key === 'number');
  return isNeeded || isEntry ? `Correct \`${where}\`.` : `Correct \`${where}\` or leave it out.`;
}

/** Fields of a body, or of an object in it. */
export interface KnownFields {
  readonly names: ReadonlySet<string>;
  /** Where the object is in the body: `stream_options.`; empty for the body itself. */
  readonly prefix?: string;
  /** Where other fields would belong: each with a sentence that says so. */
  readonly elsewhere?: (name: string) => string | undefined;
}

/**
 * Refuses every field that nobody reads: a parameter is honoured or refused, never ignored in silence. Null says nothing, in any field.
 *
 * Errors: `unknown-parameter`, `unsupported-parameter` (400), `where` naming the field.
 */
export function refuseUnknown(body: Body, { names, prefix = '', elsewhere }: KnownFields): void {
  for (const name of Object.keys(body)) {
    const value = body[name];
    if (names.has(name) || value === undefined || value === null) continue;
    const where = prefix + shown(name);
    const foreign = prefix === '' ? foreignField(name) : undefined;
    if (foreign?.asksNothing(value)) continue;
    if (foreign !== undefined)
      throw new KvantError(
        'unsupported-parameter',
        `\`${where}\` is not supported, got ${shownJson(value)}.`,
        {
          kind: 'unsupported',
          where,
          fix: foreign.instead,
        },
      );
    throw new KvantError('unknown-parameter', `\`${where}\` is not a parameter of this route.`, {
      kind: 'invalid-request',
      where,
      fix: elsewhere?.(name) ?? meant(name, names, prefix) ?? 'Check the spelling, or leave it out.',
    });
  }
}

function meant(name: string, names: ReadonlySet<string>, prefix: string): string | undefined {
  const closest = closestName(name, names);
  return closest === undefined ? undefined : `Did you mean \`${prefix}${closest}\`?`;
}

/** A value as one would read it in a message. */
function shownJson(value: unknown): string {
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? 'a list' : 'an object';
  return shown(JSON.stringify(value) ?? typeof value, 80);
}

/** `["tools", 0, "type"]` is `tools[0].type`. */
function pathOf(path: readonly PropertyKey[]): string {
  return path.reduce<string>((text, key) => {
    if (typeof key === 'number') return `${text}[${key}]`;
    return text === '' ? String(key) : `${text}.${String(key)}`;
  }, '');
}
