/** Rows for the sampler's suites: every parameter alone and together, over logits of every awkward shape. */
import type { Random } from './numbers.js';
import type { RowParams, RowTokens } from './sampling-reference.js';

/** Shapes of logits. */
export const SHAPES = ['normal', 'ties', 'holes', 'equal', 'one', 'steep', 'half'] as const;
export type Shape = (typeof SHAPES)[number];

export function logitsOf(shape: Shape, vocab: number, random: Random): Float32Array {
  const logits = random.normals(vocab, shape === 'steep' ? 8 : 2);
  const nothing = Number.NEGATIVE_INFINITY;
  if (shape === 'ties') for (let i = 0; i < vocab; i++) logits[i] = Math.round(logits[i]! * 2) / 2;
  if (shape === 'holes') for (let i = 0; i < vocab; i++) if (random.int(3) === 0) logits[i] = nothing;
  if (shape === 'holes') logits[random.int(vocab)] = 1;
  if (shape === 'equal') logits.fill(random.normal());
  if (shape === 'one') logits.fill(nothing)[random.int(vocab)] = -3;
  if (shape === 'half') for (let i = 0; i < vocab; i++) logits[i] = toHalf(logits[i]! * 4);
  return logits;
}

/** The nearest number that f16 has. */
function toHalf(x: number): number {
  const step = 2 ** Math.max(Math.floor(Math.log2(Math.abs(x))) - 10, -24);
  return Math.round(x / step) * step;
}

/** Tokens that repeat themselves, so that every penalty has something to do. */
export function tokensOf(vocab: number, length: number, random: Random): RowTokens {
  const letters = Array.from({ length: 6 }, () => random.int(vocab));
  const history: number[] = [];
  while (history.length < length) {
    const copied = random.int(3) > 0 && history.length > 4;
    if (copied) {
      const from = random.int(history.length - 3);
      history.push(...history.slice(from, from + 1 + random.int(6)));
    } else history.push(random.int(4) > 0 ? letters[random.int(6)]! : random.int(vocab));
  }
  return { history: history.slice(0, length), promptLength: Math.floor(length / 3) };
}

/** What a row may ask for, by name; tokens are those it has, for parameters that name ids. */
export function rowCases(vocab: number, tokens: RowTokens, random: Random): Record<string, RowParams> {
  const id = (): number => random.int(vocab);
  const seed = [random.int(2 ** 31), 7] as const;
  const { history } = tokens;
  const tail = history.slice(-2);
  const some = [...new Set([id(), id(), id(), ...history.slice(0, 3)])];
  const draws = { temperature: 0.9, seed };
  const dry = { multiplier: 0.8, base: 1.75, allowedLength: 2 };
  return {
    plain: draws,
    mask: { ...draws, mask: [...new Set(Array.from({ length: 1 + Math.ceil(vocab / 3) }, id))] },
    bias: { ...draws, bias: Object.fromEntries(some.map((v, i) => [v, i === 1 ? -100 : 3 - i])) },
    suppressed: {
      ...draws,
      bias: Object.fromEntries(some.slice(1).map((v) => [v, Number.NEGATIVE_INFINITY])),
    },
    banned: {
      ...draws,
      banned: [
        [...tail, id()],
        [...tail.slice(-1), id()],
        [vocab + 3, 1],
        [id(), id(), id()],
      ],
    },
    withheld: { ...draws, withheld: some.slice(0, 2) },
    repetition: { ...draws, repetition: { penalty: 1.3 } },
    'repetition, window': { ...draws, repetition: { penalty: 0.7, window: 5 } },
    counts: { ...draws, frequency: 0.4, presence: -0.3 },
    dry: { ...draws, dry },
    'dry, window and breakers': {
      ...draws,
      dry: {
        ...dry,
        window: 20,
        allowedLength: 1,
        breakers: history.slice(0, 1),
        breakerSequences: [history.slice(1, 3)],
      },
    },
    'all penalties': {
      ...draws,
      bias: { [id()]: 2 },
      repetition: { penalty: 1.2, window: 16 },
      frequency: 0.2,
      presence: 0.1,
      dry,
      banned: [[...tail, id()]],
    },
    'top-k': { ...draws, topK: 3 },
    'top-k, large': { ...draws, topK: Math.ceil(vocab * 0.7) },
    'top-p': { ...draws, topP: 0.6 },
    'min-p': { ...draws, minP: 0.07 },
    'typical-p': { ...draws, typicalP: 0.5 },
    'top-n-sigma': { ...draws, topNSigma: 1.1 },
    xtc: { ...draws, xtc: { probability: 1, threshold: 0.05 } },
    'xtc, sometimes': { ...draws, xtc: { probability: 0.5, threshold: 0.1 } },
    'all filters': {
      ...draws,
      topK: 40,
      topP: 0.95,
      minP: 0.01,
      typicalP: 0.9,
      topNSigma: 2,
      xtc: { probability: 0.9, threshold: 0.1 },
    },
    'typical-p and top-n-sigma': { ...draws, temperature: 1.7, typicalP: 0.7, topNSigma: 1 },
    'large top-k and top-p': { ...draws, topK: Math.ceil(vocab / 2), topP: 0.7, typicalP: 0.8 },
    mirostat: { ...draws, mirostat: { tau: 3, eta: 0.1 } },
    'mirostat, narrow': { ...draws, topK: 1, mirostat: { tau: 3, eta: 0.3, mu: 1.5 } },
    'greedy with penalties': { repetition: { penalty: 1.5 }, frequency: 0.5, dry },
    forced: { ...draws, forced: id(), repetition: { penalty: 1.1 } },
    'forced, mirostat': { ...draws, forced: id(), mirostat: { tau: 2, eta: 0.5 } },
    logprobs: { ...draws, logprobs: 20 },
    'logprobs, none listed': { ...draws, logprobs: 0 },
    'raw logprobs of penalised': {
      ...draws,
      logprobs: 5,
      repetition: { penalty: 1.7 },
      withheld: some.slice(0, 2),
    },
    'processed logprobs': { ...draws, logprobs: 7, processed: true, frequency: 1, presence: 0.5 },
  };
}
