/** The float64 sampler for tests that ask it the same of every device: computed for the first, and kept for the others. */
import { type Outcome, type RowParams, type RowTokens, sampleRow } from './sampling-reference.js';

const kept = new Map<string, Outcome>();

export function sampleRowOnce(logits: Float32Array, row: RowParams, tokens: RowTokens, mu?: number): Outcome {
  const key = `${digest(logits)} ${JSON.stringify([row, tokens, mu])}`;
  let outcome = kept.get(key);
  if (outcome === undefined) {
    const whole = sampleRow(logits, row, tokens, mu);
    // A set of a wide row's ids takes many times what their bits take.
    const chosen = new Uint8Array(logits.length);
    for (const id of whole.kept) chosen[id] = 1;
    outcome = { ...whole, kept: { has: (id) => chosen[id] === 1 } };
    kept.set(key, outcome);
  }
  return outcome;
}

/** Of the bits of all, in order. */
function digest(logits: Float32Array): string {
  const words = new Uint32Array(logits.buffer, logits.byteOffset, logits.length);
  let a = 0x811c9dc5;
  let b = words.length;
  for (const word of words) {
    a = Math.imul(a ^ word, 0x01000193);
    b = Math.imul(b ^ (word >>> 7) ^ (word << 11), 0x85ebca6b) ^ (b >>> 15);
  }
  return `${words.length} ${a >>> 0} ${b >>> 0}`;
}
