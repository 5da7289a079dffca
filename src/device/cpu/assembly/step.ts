/**
 * What the first thread does around a step, in the first memory. Inputs lie in a slot of their own until the step
 * begins (the host may already write those of the next), results in one until the host has read them.
 */
import { STEP_OUTPUTS, STEP_WANTS } from '../opcodes';
import { R_WORDS, RECORDS } from '../sample-words';

/** Copies a step's inputs to where kernels look; an input `-(slot + 1)` becomes the token the slot sampled last. */
export function beginStep(inbox: usize, step: usize, bytes: u32, tokens: u32, last: usize, slots: u32): void {
  memory.copy(step, inbox, bytes);
  const count = load<u32>(step);
  const at: usize = step + tokens * 4;
  for (let t: u32 = 0; t < count; t++) {
    const token = load<i32>(at + t * 4);
    if (token >= 0) continue;
    const slot: u32 = -1 - token;
    // 0xffffffff, the id of a row that could not be sampled, lies outside any table.
    store<u32>(at + t * 4, slot < slots ? load<u32>(last + slot * 4) : 0xffffffff);
  }
}

/** Hands out the sampled ids: to the host, with their records, and to the slots for the steps to come. */
export function endStep(ids: usize, result: usize, step: usize, outputSlots: u32, last: usize, slots: u32): void {
  const count = load<u32>(step, 4 * STEP_OUTPUTS);
  if (load<u32>(step, 4 * STEP_WANTS) & RECORDS) memory.copy(result + count * 4, ids + count * 4, count * R_WORDS * 4);
  for (let r: u32 = 0; r < count; r++) {
    const id = load<u32>(ids + r * 4);
    store<u32>(result + r * 4, id);
    const slot = load<u32>(step + (outputSlots + r) * 4);
    if (slot < slots) store<u32>(last + slot * 4, id);
  }
}
