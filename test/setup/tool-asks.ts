/** Three tools, and what is asked of a grammar of calls of them. */
import { toolFormatNamed } from '../../src/text/formats/formats.js';
import type { ToolsAsk } from '../../src/text/formats/tool-grammar.js';

export const PARAMETERS = {
  weather: {
    type: 'object',
    properties: {
      city: { type: 'string', maxLength: 12 },
      unit: { enum: ['celsius', 'fahrenheit'] },
      days: { type: 'integer', minimum: 1, maximum: 14 },
      note: { anyOf: [{ type: 'string', pattern: '^[a-z ]{2,8}$' }, { type: 'null' }] },
    },
    required: ['city', 'days'],
    additionalProperties: false,
  },
  set: {
    type: 'object',
    properties: {
      on: { type: 'boolean' },
      tags: { type: 'array', items: { $ref: '#/$defs/tag' }, maxItems: 3 },
      place: {
        type: 'object',
        properties: { x: { type: 'number' } },
        required: ['x'],
        additionalProperties: false,
      },
    },
    required: ['on', 'tags', 'place'],
    additionalProperties: false,
    $defs: { tag: { type: ['string', 'null'], maxLength: 5 } },
  },
  ping: { type: 'object', properties: {}, additionalProperties: false },
} as const;
export const NAMES = Object.keys(PARAMETERS) as (keyof typeof PARAMETERS)[];
export const TOOLS = NAMES.map((name) => ({
  type: 'function',
  function: { name, parameters: PARAMETERS[name] },
}));

export const askOf = (format: string, more: Partial<ToolsAsk> = {}): ToolsAsk => ({
  format,
  tools: NAMES.map((name, i) => ({
    name,
    schema: JSON.stringify(PARAMETERS[name]),
    strict: false,
    where: `tools[${i}].function.parameters`,
  })),
  required: true,
  several: true,
  ...more,
});

/** Tokens of a made-up tokenizer, by the texts that a format marks calls with. */
export function cluesOf(format: string, template: string, withTokens: boolean) {
  const tokens = withTokens ? [...(toolFormatNamed(format).tokens ?? [])] : [];
  const idOf = (text: string): number | undefined => {
    const at = tokens.indexOf(text);
    return at < 0 ? undefined : 1000 + at;
  };
  return {
    template,
    idOf,
    hasToken: (text: string) => idOf(text) !== undefined,
    textOf: (id: number) => tokens[id - 1000]!,
  };
}
