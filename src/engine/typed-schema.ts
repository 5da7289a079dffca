/** Schemas of zod 4: what an answer is held to, and what is read of it. */

import { createRequire } from 'node:module';
import type { $ZodType } from 'zod/v4/core';
import { KvantError } from '../errors.js';

/** Loaded for those who have such schemas: commands start without it. */
const zod = (): typeof import('zod/v4/core') =>
  createRequire(import.meta.url)('zod/v4/core') as typeof import('zod/v4/core');

/** A schema of zod 4, whichever copy of it: `T` is what it reads. */
export interface TypedSchema<T> {
  readonly _zod: { readonly output: T };
}

/** A JSON schema, and how an answer is read by what it was made of. */
export interface ReadSchema {
  readonly json: Readonly<Record<string, unknown>>;
  /**
   * Null for a text that is not what the schema asks for: one that was cut, or that a refinement refuses. Errors: `invalid-parameter`,
   * where a refinement or a transform throws.
   */
  read(text: string): Promise<unknown>;
}

/** Null for what is no schema of a library. Errors: `invalid-parameter` for zod 3, `unsupported-schema`; where `schema`. */
export function readTypedSchema(schema: unknown, where = 'schema'): ReadSchema | null {
  if (typeof schema !== 'object' || schema === null) return null;
  if ('_zod' in schema) {
    const typed = schema as $ZodType;
    return {
      json: jsonOf(typed, where),
      async read(text) {
        let value: unknown;
        try {
          value = JSON.parse(text);
        } catch {
          return null;
        }
        // Refinements may be asynchronous.
        const read = await zod()
          .safeParseAsync(typed, value)
          .catch((cause: unknown) => {
            throw unread(where, cause);
          });
        return read.success ? read.data : null;
      },
    };
  }
  if ('_def' in schema && 'safeParse' in schema)
    throw new KvantError('invalid-parameter', `\`${where}\` is a schema of zod 3.`, {
      kind: 'invalid-request',
      where,
      fix: 'Use zod 4 (`npm install zod@4`, or import from "zod/v4"), or give the JSON schema itself.',
    });
  return null;
}

function unread(where: string, cause: unknown): KvantError {
  const said = cause instanceof Error ? cause.message : String(cause);
  return new KvantError('invalid-parameter', `\`${where}\` threw while it read an answer: ${said}`, {
    kind: 'invalid-request',
    where,
    fix: 'Let refinements return false, and transforms add an issue, in place of throwing.',
    cause,
  });
}

/** Names of formats beside which zod writes a pattern, which is what it checks. */
const FORMATS = new Set([
  'date',
  'time',
  'date-time',
  'duration',
  'uuid',
  'email',
  'hostname',
  'ipv4',
  'ipv6',
  'uri',
]);
const LOOK_AHEAD = /\(\?[=!]/;

function jsonOf(schema: $ZodType, where: string): Readonly<Record<string, unknown>> {
  try {
    const { $schema: _, ...json } = zod().toJSONSchema(schema, {
      io: 'input',
      override({ zodSchema, jsonSchema }) {
        const { def } = zodSchema._zod;
        // What zod strips the model need not write.
        if (def.type === 'object' && jsonSchema.additionalProperties === undefined)
          jsonSchema.additionalProperties = false;
        const names = jsonSchema.propertyNames;
        if (typeof names === 'object' && Object.keys(names).join() === 'type')
          delete jsonSchema.propertyNames;
        const { format, pattern } = jsonSchema;
        if (format === undefined || pattern === undefined || !FORMATS.has(format)) return;
        // The name says less than the pattern, but may be told where that looks ahead.
        if (LOOK_AHEAD.test(pattern)) delete jsonSchema.pattern;
        else delete jsonSchema.format;
      },
    });
    return json;
  } catch (cause) {
    throw new KvantError(
      'unsupported-schema',
      `\`${where}\` has no JSON schema: ${(cause as Error).message}`,
      {
        kind: 'unsupported',
        where,
        fix: 'Leave out what JSON has no form for, such as dates, maps and functions.',
        cause,
      },
    );
  }
}
