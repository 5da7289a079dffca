/**
 * Tools as a chat template is given them: without what their JSON schemas say to validators only.
 *
 * Schemas that a library wrote begin with `$schema` (zod, pydantic, MCP servers), which no model was trained on: with it a small
 * model names wrong arguments.
 */
import { isJsonObject, type JsonObject } from './json-file.js';
import { objectOf, orderedEntries } from './lossless-json.js';

/** Of a schema: they name it or speak to its authors. */
const LEFT_OUT = new Set(['$schema', '$id', '$comment']);

/** Where a tool, or its function, has a schema; in OpenAI's, Anthropic's, MCP's and transformers' words. */
const SCHEMAS_OF_A_TOOL = new Set([
  'parameters',
  'input_schema',
  'inputSchema',
  'output_schema',
  'outputSchema',
  'return',
  'returns',
]);

/** Keywords whose value is a schema, or a list of them. */
const SCHEMA_KEYWORDS = new Set([
  'items',
  'prefixItems',
  'additionalItems',
  'unevaluatedItems',
  'contains',
  'additionalProperties',
  'unevaluatedProperties',
  'propertyNames',
  'allOf',
  'anyOf',
  'oneOf',
  'not',
  'if',
  'then',
  'else',
  'contentSchema',
]);

/** Keywords whose value has a schema for each name: the names are the tool's own. */
const NAMED_SCHEMAS = new Set([
  'properties',
  'patternProperties',
  'dependentSchemas',
  'dependencies',
  '$defs',
  'definitions',
]);

/**
 * A tool without `$schema`, `$id` and `$comment` in its schemas. A property, or a value in an `enum`, that is named so stays.
 *
 * @param tool in any of the usual forms, with or without a `function` around it; not changed
 */
export function toolForTemplate(tool: JsonObject): JsonObject {
  return mapMembers(tool, (key, value) => {
    if (SCHEMAS_OF_A_TOOL.has(key)) return withoutNotes(value);
    return key === 'function' && isJsonObject(value) ? toolForTemplate(value) : value;
  });
}

function withoutNotes(schema: unknown): unknown {
  if (!isJsonObject(schema)) return schema;
  const kept = orderedEntries(schema).filter(([key]) => !LEFT_OUT.has(key));
  return mapMembers(objectOf(kept), (key, value) => {
    if (NAMED_SCHEMAS.has(key) && isJsonObject(value)) return mapMembers(value, (_, v) => withoutNotes(v));
    if (!SCHEMA_KEYWORDS.has(key)) return value;
    return Array.isArray(value) ? value.map(withoutNotes) : withoutNotes(value);
  });
}

function mapMembers(object: JsonObject, change: (key: string, value: unknown) => unknown): JsonObject {
  return objectOf(orderedEntries(object).map(([key, value]) => [key, change(key, value)] as const));
}
