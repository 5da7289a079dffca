import { describe, expect, it } from 'vitest';
import { ChatTemplate } from './chat-template.js';
import { parseLossless } from './lossless-json.js';

const template = new ChatTemplate('{{ tools | tojson }}');
const shown = (tool: string): string =>
  template.render([{ role: 'user', content: 'x' }], { tools: [parseLossless(tool)] }).slice(1, -1);
const asTool = (schema: string): string =>
  `{"type": "function", "function": {"name": "f", "parameters": ${schema}}}`;

describe('tools for a template', () => {
  it.each([
    [
      'what zod writes',
      '{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}',
      '{"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}',
    ],
    [
      'schemas within schemas',
      '{"$id": "x", "properties": {"a": {"$comment": "c", "items": {"$id": "y", "type": "string"}, "prefixItems": [{"$schema": "s"}]}}, "anyOf": [{"$id": "z", "not": {"$comment": ""}}], "$defs": {"d": {"$id": "d", "type": "null"}}, "if": {"$id": "i"}, "patternProperties": {"^x": {"$comment": 1}}, "additionalProperties": {"$schema": ""}}',
      '{"properties": {"a": {"items": {"type": "string"}, "prefixItems": [{}]}}, "anyOf": [{"not": {}}], "$defs": {"d": {"type": "null"}}, "if": {}, "patternProperties": {"^x": {}}, "additionalProperties": {}}',
    ],
    [
      'properties of these names, and of the names of keywords',
      '{"properties": {"$id": {"type": "string", "$id": "gone"}, "$schema": {"type": "string"}, "$comment": true, "properties": {"type": "object", "properties": {"$id": {}}, "$id": 1}, "enum": {"$comment": "gone"}, "2": {}, "1": {}}, "required": ["$id", "$schema"]}',
      '{"properties": {"$id": {"type": "string"}, "$schema": {"type": "string"}, "$comment": true, "properties": {"type": "object", "properties": {"$id": {}}}, "enum": {}, "2": {}, "1": {}}, "required": ["$id", "$schema"]}',
    ],
    [
      'values',
      '{"const": {"$id": 1}, "enum": [{"$schema": 2}], "default": {"$comment": 3}, "examples": [{"$id": 4}], "minimum": 1.0, "dependencies": {"a": ["$id"]}}',
      '{"const": {"$id": 1}, "enum": [{"$schema": 2}], "default": {"$comment": 3}, "examples": [{"$id": 4}], "minimum": 1.0, "dependencies": {"a": ["$id"]}}',
    ],
    ['no schema', 'true', 'true'],
    ['no schema at all', 'null', 'null'],
  ])('hold %s', (_, schema, expected) => {
    expect(shown(asTool(schema))).toBe(asTool(expected));
  });

  it('are cleaned in every form', () => {
    const schema = '{"$schema": "s", "type": "object"}';
    for (const key of ['parameters', 'input_schema', 'inputSchema', 'return'])
      expect(shown(`{"name": "f", "${key}": ${schema}}`)).toBe(`{"name": "f", "${key}": {"type": "object"}}`);
    expect(shown(`{"function": {"return": ${schema}, "name": "$id"}, "$id": "kept"}`)).toBe(
      '{"function": {"return": {"type": "object"}, "name": "$id"}, "$id": "kept"}',
    );
  });

  it('are not changed', () => {
    const tool = JSON.parse(asTool('{"$schema": "s", "properties": {"a": {"$id": "i"}}}')) as object;
    const before = structuredClone(tool);
    template.render([{ role: 'user', content: 'x' }], { tools: [tool] });
    expect(tool).toEqual(before);
  });
});
