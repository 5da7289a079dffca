import { expect, it } from 'vitest';
import { readPostProcessor } from './post-processors.js';

const idOf = (token: string): number | undefined => ({ '<s>': 1, '</s>': 2 })[token];
const template = (...single: string[]) => ({
  type: 'TemplateProcessing',
  single: single.map((id) => (id === 'A' ? { Sequence: { id } } : { SpecialToken: { id } })),
  special_tokens: { '<two>': { id: '<two>', ids: [7, 8] } },
});

const NO_PAIR = { before: [], between: [], after: [] };

it('reads what stands around a text', () => {
  expect(readPostProcessor(null, idOf)).toEqual({ before: [], after: [], pair: NO_PAIR });
  const one = readPostProcessor(template('<two>', 'A', '</s>'), idOf);
  expect(one).toEqual({ before: [7, 8], after: [2], pair: null });
  expect(readPostProcessor(template('<none>', 'A'), idOf)).toMatchObject({ before: [undefined], after: [] });
  const cls = { cls: ['[CLS]', 5], sep: ['</s>'] };
  expect(readPostProcessor({ type: 'BertProcessing', ...cls }, idOf)).toMatchObject({
    before: [5],
    after: [2],
  });
  const processors = [{ type: 'ByteLevel' }, template('<s>', 'A'), template('A', '</s>')];
  const all = readPostProcessor({ type: 'Sequence', processors }, idOf);
  expect(all).toEqual({ before: [1], after: [2], pair: null });
});

it('reads what stands around a pair', () => {
  const cls = { cls: ['[CLS]', 5], sep: ['</s>'] };
  const pairOf = (definition: Parameters<typeof readPostProcessor>[0]) =>
    readPostProcessor(definition, idOf).pair;
  expect(pairOf({ type: 'BertProcessing', ...cls })).toEqual({ before: [5], between: [2], after: [2] });
  expect(pairOf({ type: 'RobertaProcessing', ...cls })).toEqual({ before: [5], between: [2, 2], after: [2] });
  const pair = template('<s>', 'A', '</s>', '<two>', 'B').single.map((part) =>
    'SpecialToken' in part && part.SpecialToken!.id === 'B' ? { Sequence: { id: 'B' } } : part,
  );
  const both = { ...template('A'), pair };
  expect(pairOf(both)).toEqual({ before: [1], between: [2, 7, 8], after: [] });
  const processors = [{ type: 'ByteLevel' }, both];
  expect(pairOf({ type: 'Sequence', processors })).toEqual({ before: [1], between: [2, 7, 8], after: [] });
  expect(() => pairOf({ ...both, pair: [...pair].reverse() })).toThrow('in order: A, B');
});

it('names what it does not know', () => {
  expect(() => readPostProcessor({ type: 'Nope' }, idOf)).toThrow('"Nope"');
  expect(() => readPostProcessor(template('A', 'A'), idOf)).toThrow('once');
});
