import { expect, it } from 'vitest';
import { readPostProcessor } from './post-processors.js';

const idOf = (token: string): number | undefined => ({ '<s>': 1, '</s>': 2 })[token];
const template = (...single: string[]) => ({
  type: 'TemplateProcessing',
  single: single.map((id) => (id === 'A' ? { Sequence: { id } } : { SpecialToken: { id } })),
  special_tokens: { '<two>': { id: '<two>', ids: [7, 8] } },
});

it('reads what stands around a text', () => {
  expect(readPostProcessor(null, idOf)).toEqual({ before: [], after: [] });
  expect(readPostProcessor(template('<two>', 'A', '</s>'), idOf)).toEqual({ before: [7, 8], after: [2] });
  expect(readPostProcessor(template('<none>', 'A'), idOf)).toEqual({ before: [undefined], after: [] });
  expect(readPostProcessor({ type: 'BertProcessing', cls: ['[CLS]', 5], sep: ['</s>'] }, idOf)).toEqual({
    before: [5],
    after: [2],
  });
  const processors = [{ type: 'ByteLevel' }, template('<s>', 'A'), template('A', '</s>')];
  expect(readPostProcessor({ type: 'Sequence', processors }, idOf)).toEqual({ before: [1], after: [2] });
});

it('names what it does not know', () => {
  expect(() => readPostProcessor({ type: 'Nope' }, idOf)).toThrow('"Nope"');
  expect(() => readPostProcessor(template('A', 'A'), idOf)).toThrow('once');
});
