/** The sampler's row state of a CPU program, by slot. It lies in the memory in which the program samples. */
import { KvantError } from '../../errors.js';
import {
  ALL_FEATURES,
  type RowSpec,
  requireFeatures,
  type SamplerRows,
  STATE_FEATURES,
} from '../sampling.js';
import type { DeviceMemory, MemorySet } from './memory.js';
import { keepsRaw } from './sample-wants.js';
import { CpuSlotState } from './sampler-state.js';

export interface SamplerPlace {
  readonly memory: DeviceMemory;
  /** `[slots]` addresses of states, 0 where there is none. */
  readonly states: number;
  readonly slots: number;
  readonly vocab: number;
  readonly maxContext: number;
}

export class CpuSamplerRows implements SamplerRows {
  readonly features = ALL_FEATURES;
  readonly #set: MemorySet;
  readonly #place: SamplerPlace;
  readonly #states = new Map<number, CpuSlotState>();
  readonly #addresses: Uint32Array<ArrayBufferLike>;

  constructor(set: MemorySet, place: SamplerPlace) {
    this.#set = set;
    this.#place = place;
    this.#addresses = place.memory.u32(place.states, place.slots);
  }

  get bytes(): number {
    let bytes = 0;
    for (const { allocation } of this.#states.values()) bytes += allocation.bytes;
    return bytes;
  }

  get slots(): number {
    return this.#states.size;
  }

  async sync(slot: number, spec: RowSpec, history: Int32Array, promptLength: number): Promise<void> {
    requireFeatures(spec.features, this.features, 'CPU');
    const { memory, slots, maxContext, vocab } = this.#place;
    if (!(slot >= 0 && slot < slots)) throw badSync(`slot ${slot} is not one of ${slots}`);
    if (history.length > maxContext) throw badSync(`${history.length} tokens of at most ${maxContext}`);
    if ((spec.features & STATE_FEATURES) === 0) {
      this.release(slot);
      return;
    }
    let state = this.#states.get(slot);
    if (state === undefined || !state.suits(spec, promptLength)) {
      this.release(slot);
      state = new CpuSlotState(this.#set, memory, spec, promptLength, { vocab, maxContext });
      this.#states.set(slot, state);
    }
    state.sync(history, spec.mu);
    this.#addresses[slot] = state.allocation.at;
  }

  setMask(slot: number, mask: Uint32Array): void {
    const words = Math.ceil(this.#place.vocab / 32);
    if (mask.length !== words) throw badMask(`${mask.length} words where the vocabulary needs ${words}`);
    const state = this.#states.get(slot);
    if (state?.setMask(mask) !== true) throw badMask(`slot ${slot} was not synced with a mask`);
  }

  take(slot: number, history: Int32Array, mu: number): void {
    const { maxContext } = this.#place;
    if (history.length > maxContext) throw badSync(`${history.length} tokens of at most ${maxContext}`);
    this.#states.get(slot)?.sync(history, mu);
  }

  release(slot: number): void {
    const state = this.#states.get(slot);
    if (state === undefined) return;
    this.#addresses[slot] = 0;
    this.#states.delete(slot);
    this.#set.free(state.allocation);
  }

  /** Whether a slot may take part in a step with these features. */
  holds(slot: number, features: number): boolean {
    if ((features & STATE_FEATURES) === 0) return true;
    const own = this.#states.get(slot)?.spec.features ?? 0;
    return (features & STATE_FEATURES & ~own) === 0 && (!keepsRaw(features) || keepsRaw(own));
  }

  /** A token that a retired step drew for a slot. */
  note(slot: number, position: number, id: number): void {
    this.#states.get(slot)?.note(position, id);
  }

  dispose(): void {
    for (const slot of [...this.#states.keys()]) this.release(slot);
  }
}

function badSync(what: string): KvantError {
  return new KvantError('invalid-sync', `sync: ${what}.`, {
    fix: 'Sync slots of the program, with histories within its limits.',
  });
}

function badMask(what: string): KvantError {
  return new KvantError('invalid-mask', `setMask: ${what}.`, {
    fix: 'Sync the slot with the mask feature, and set ceil(vocab / 32) words.',
  });
}
