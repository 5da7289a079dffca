import { describe, expect, it } from 'vitest';
import { KvantError } from '../errors.js';
import { parseLossless } from './lossless-json.js';
import { checkToolList } from './tool-check.js';

const refusal = (tools: unknown): KvantError => {
  try {
    checkToolList(tools);
  } catch (error) {
    if (error instanceof KvantError) return error;
  }
  throw new Error(`not refused: ${JSON.stringify(tools)}`);
};
const of = (body: object): object[] => [{ type: 'function', function: body }];

describe('tools', () => {
  it('are functions, in the forms that APIs have', () => {
    checkToolList([]);
    checkToolList(of({ name: 'f' }));
    checkToolList(of({ name: 'f', description: null, parameters: null, strict: null }));
    checkToolList(
      of({ name: 'f', description: 'd', parameters: { type: 'object' }, strict: true, return: {} }),
    );
    // MCP's.
    checkToolList(of({ name: 'f', inputSchema: {}, outputSchema: {}, annotations: {}, title: 'F' }));
    checkToolList([{ function: { name: 'f' } }, { name: 'g', input_schema: {} }]);
    checkToolList([{ type: 'function', function: { name: 'f' }, cache_control: { type: 'ephemeral' } }]);
  });

  it.each([
    ['tools', 'f'],
    ['tools', null],
    ['tools[0]', ['f']],
    ['tools[0]', [null]],
    ['tools[0].type', [{ type: 5, function: { name: 'f' } }]],
    ['tools[0].function', [{ type: 'function' }]],
    ['tools[0].function', [{ type: 'function', function: null }]],
    ['tools[0].function', [{ type: 'function', function: 'f' }]],
    ['tools[0].function', [{ type: 'function', name: 'f' }]],
    ['tools[1].function.name', [...of({ name: 'f' }), ...of({})]],
    ['tools[0].function.name', of({ name: 5 })],
    ['tools[0].function.name', parseLossless('[{"type": "function", "function": {"name": 5.0}}]')],
    ['tools[0].function.name', of({ name: '' })],
    ['tools[0].function.name', of({ name: null })],
    ['tools[0].function.description', of({ name: 'f', description: ['d'] })],
    ['tools[0].function.parameters', of({ name: 'f', parameters: '{}' })],
    ['tools[0].function.parameters', of({ name: 'f', parameters: [] })],
    ['tools[0].function.strict', of({ name: 'f', strict: 'yes' })],
    ['tools[0].function.parametres', of({ name: 'f', parametres: {} })],
    ['tools[1].function.name', [...of({ name: 'f' }), ...of({ name: 'f', parameters: {} })]],
    ['tools[0].name', [{}]],
    ['tools[0].input_schema', [{ name: 'f', input_schema: 5 }]],
  ])('are refused at %s', (where, tools) => {
    expect(refusal(tools)).toMatchObject({ code: 'invalid-tools', status: 400, where });
  });

  it('of other types are refused, naming the type', () => {
    for (const type of ['zzz', 'custom', 'web_search', 'code_interpreter', ''])
      expect(refusal([{ type, function: { name: 'f' }, custom: { name: 'c' } }])).toMatchObject({
        code: 'unsupported-tool',
        status: 400,
        where: 'tools[0].type',
        message: expect.stringContaining(`"${type}"`),
      });
  });
});
