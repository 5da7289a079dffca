/** What OpenAI asks of schemas with `strict`: every object lists all its properties as required and takes no others. */

import { type SchemaNode, unsupported } from './schema-nodes.js';

/** Clients that send it with whatever schema they have, and what makes them leave it out. */
const WITHOUT =
  'Or leave `strict` out (AI SDK: `strictJsonSchema: false`; LangChain: `method: "functionCalling"`): the schema is held to all the same.';

/** Errors: `unsupported-schema`. */
export function checkStrict({ schema, pointer }: SchemaNode): void {
  if (typeof schema === 'boolean') return;
  if (schema.type !== 'object' && schema.properties === undefined) return;
  if (schema.additionalProperties !== false)
    throw unsupported(
      pointer,
      'additionalProperties',
      `With "strict": true every object has "additionalProperties": false. ${WITHOUT}`,
    );
  const required = new Set((schema.required ?? []) as readonly string[]);
  if (!Object.keys(schema.properties ?? {}).every((name) => required.has(name)))
    throw unsupported(
      pointer,
      'required',
      `With "strict": true every property is listed as required: one that may be absent is nullable. ${WITHOUT}`,
    );
}
