import { describe, expect, it } from 'vitest';
import { ANY_ARGUMENTS } from './formats/tool-grammar.js';
import { readToolsAsk, type ToolRequest } from './tool-choice.js';

const parameters = { type: 'object', properties: { a: { type: 'string' } } };
const tools = [
  { type: 'function', function: { name: 'f', parameters } },
  { name: 'g', input_schema: parameters, strict: true },
  { type: 'function', function: { name: 'h' } },
];
const read = (request: ToolRequest, formed = false) => {
  try {
    return readToolsAsk({ tools, ...request }, 'hermes', formed);
  } catch (error) {
    const { code, where } = error as { code: string; where: string };
    return `${code} ${where}`;
  }
};
const names = (request: ToolRequest, formed = false) => {
  const ask = read(request, formed);
  return typeof ask === 'object' ? (ask?.tools.map(({ name }) => name).join() ?? null) : ask;
};

describe('what calls are held to', () => {
  it('is nothing where they are free', () => {
    const free = [tools[0], tools[2]];
    expect(read({ tools: free })).toBe(null);
    expect(read({ tools: free, toolChoice: 'auto', parallelToolCalls: false })).toBe(null);
    expect(read({ toolChoice: 'none' })).toBe(null);
    expect(read({ tools: [] })).toBe(null);
    expect(read({ parseToolCalls: false })).toBe(null);
  });

  it('is all tools with required, one with a name, some with a list', () => {
    expect(names({ toolChoice: 'required' })).toBe('f,g,h');
    expect(read({ toolChoice: 'required' })).toMatchObject({ required: true, several: true });
    expect(read({ toolChoice: 'required', parallelToolCalls: false })).toMatchObject({ several: false });
    expect(names({ toolChoice: { name: 'g' } })).toBe('g');
    expect(read({ toolChoice: { name: 'g' } })).toMatchObject({ required: true, several: false });
    expect(names({ toolChoice: { mode: 'auto', tools: ['h', 'f'] } })).toBe('h,f');
    expect(read({ toolChoice: { mode: 'auto', tools: ['h'] } })).toMatchObject({ required: false });
    expect(read({ toolChoice: { mode: 'required', tools: ['h'] } })).toMatchObject({ required: true });
  });

  it('is the schemas of strict tools where calls may be', () => {
    expect(read({})).toEqual({
      format: 'hermes',
      required: false,
      several: true,
      tools: [
        { name: 'f', schema: ANY_ARGUMENTS, strict: false, where: 'tools[0].function.parameters' },
        { name: 'g', schema: JSON.stringify(parameters), strict: true, where: 'tools[1].input_schema' },
        { name: 'h', schema: ANY_ARGUMENTS, strict: false, where: 'tools[2].function.parameters' },
      ],
    });
    // An answer of a form, or calls.
    expect(names({ tools: [tools[0]!] }, true)).toBe('f');
  });

  it('is refused where there is no such tool', () => {
    expect(read({ toolChoice: { name: 'nope' } })).toBe('invalid-parameter toolChoice');
    expect(read({ toolChoice: { mode: 'auto', tools: ['nope'] } })).toBe('invalid-parameter toolChoice');
    expect(read({ toolChoice: 'required', tools: [] })).toBe('conflicting-parameters toolChoice');
    for (const toolChoice of [
      'any',
      5,
      {},
      { name: '' },
      { mode: 'auto', tools: [] },
      null,
      { mode: 'x', tools: ['f'] },
    ])
      expect([toolChoice, read({ toolChoice })]).toEqual([toolChoice, 'invalid-parameter toolChoice']);
  });
});
