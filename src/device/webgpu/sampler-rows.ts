/**
 * The sampler's row state on the GPU: SamplerRows over one buffer (sampler-space.ts), in which each slot has a stretch
 * with its parts (sampler-parts.ts). Kernels carry it on; the host fills it when a slot is synced, and notes the
 * tokens that retired steps drew, so as to know what the state holds.
 */

import { KvantError } from '../../errors.js';
import { INVALID_TOKEN } from '../device.js';
import type { Tensor } from '../graph.js';
import {
  ALL_FEATURES,
  FEATURE,
  HISTORY_FEATURES,
  type RowSpec,
  requireFeatures,
  type SamplerRows,
  STATE_FEATURES,
} from '../sampling.js';
import { equalSpecs, SyncedTokens } from '../sampling-state.js';
import { NO_SLOT, type StepInputs } from '../step.js';
import type { Allocator } from './allocator.js';
import { strideOf } from './resources.js';
import { fillParts, layoutParts, type PartsLayout, type SamplerShape, tailWrites } from './sampler-parts.js';
import { SamplerSpace, type Stretch } from './sampler-space.js';
import { STATE_PARTS } from './step-buffer.js';

interface SlotState {
  readonly spec: RowSpec;
  readonly promptLength: number;
  readonly layout: PartsLayout;
  readonly stretch: Stretch;
  /** Where the parts stand in the buffer. */
  readonly parts: Uint32Array;
  /** Null where the state does not depend on tokens. */
  readonly synced: SyncedTokens | null;
}

/** The slots and positions of a step under way. */
export interface Drawing {
  count: number;
  readonly slots: Uint32Array;
  readonly positions: Uint32Array;
}

export interface SamplerHost {
  readonly device: GPUDevice;
  readonly allocator: Allocator;
  readonly bindingBytes: number;
  /** Compiles the kernels of steps in which rows have features. */
  readonly prepare: (features: number) => Promise<void>;
  /** Told of every new buffer of state, of null when it has been given back. */
  readonly onBuffer: (buffer: GPUBuffer | null) => void;
}

/** @param positions that a slot can hold */
export function samplerShape(
  logits: Tensor,
  { maxContext }: { readonly maxContext: number },
  positions: number,
): SamplerShape {
  const { cols } = logits;
  return { vocab: cols, stride: strideOf(cols), maxContext: Math.min(maxContext, positions) };
}

export class GpuSamplerRows implements SamplerRows {
  readonly features = ALL_FEATURES;
  readonly #host: SamplerHost;
  readonly #shape: SamplerShape;
  readonly #space: SamplerSpace;
  readonly #states = new Map<number, SlotState>();
  readonly #drawings: Drawing[];
  #turn: Promise<unknown> = Promise.resolve();

  constructor(host: SamplerHost, shape: SamplerShape, inFlight: number, maxOutputs: number) {
    this.#host = host;
    this.#shape = shape;
    this.#space = new SamplerSpace(host.device, host.allocator, host.bindingBytes, host.onBuffer);
    this.#drawings = Array.from({ length: inFlight }, () => ({
      count: 0,
      slots: new Uint32Array(maxOutputs),
      positions: new Uint32Array(maxOutputs),
    }));
  }

  get bytes(): number {
    return this.#space.bytes;
  }

  get slots(): number {
    return this.#states.size;
  }

  /** Where a slot's parts stand, in the order of STATE_PARTS; null without state. */
  readonly partsOf = (slot: number): Uint32Array | null => this.#states.get(slot)?.parts ?? null;

  async sync(slot: number, spec: RowSpec, history: Int32Array, promptLength: number): Promise<void> {
    requireFeatures(spec.features, this.features, 'WebGPU');
    await this.#host.prepare(spec.features);
    // One after the other: room is made in a buffer that all slots share.
    const turn = this.#turn.then(() => this.#sync(slot, spec, history, promptLength));
    this.#turn = turn.catch(() => {});
    await turn;
  }

  async #sync(slot: number, spec: RowSpec, history: Int32Array, promptLength: number): Promise<void> {
    this.#requireRoom(slot, history);
    const old = this.#states.get(slot);
    if (old !== undefined && old.promptLength === promptLength && equalSpecs(old.spec, spec)) {
      this.#update(old, history, spec.mu);
      return;
    }
    this.release(slot);
    const layout = layoutParts(spec, this.#shape);
    if (layout === null) return;
    const stretch = await this.#space.take(layout.vectors);
    const parts = layout.at.map((at) => (at === 0 ? 0 : at + stretch.at));
    parts[STATE_PARTS.indexOf('head')] = stretch.at;
    parts[STATE_PARTS.indexOf('ring')] = layout.at[STATE_PARTS.indexOf('ring')]!;
    const synced = spec.features & HISTORY_FEATURES ? new SyncedTokens(this.#shape.maxContext) : null;
    synced?.set(history);
    const state: SlotState = { spec, promptLength, layout, stretch, parts, synced };
    this.#fill(state, history, true);
    this.#states.set(slot, state);
  }

  take(slot: number, history: Int32Array, mu: number): void {
    this.#requireRoom(slot, history);
    const state = this.#states.get(slot);
    if (state !== undefined) this.#update(state, history, mu);
  }

  #update(old: SlotState, history: Int32Array, mu: number): void {
    const state = { ...old, spec: { ...old.spec, mu } };
    const change = old.synced?.compare(history) ?? 'equal';
    if (change === 'equal') this.#setMu(old, mu);
    else if (change === 'continued') this.#append(state, history, old.synced!.length);
    else this.#fill(state, history, false);
    if (change !== 'equal') old.synced?.set(history);
  }

  setMask(slot: number, mask: Uint32Array): void {
    const state = this.#states.get(slot);
    if (state === undefined || (state.spec.features & FEATURE.MASK) === 0) {
      throw new KvantError('invalid-step', `Slot ${slot} was not synced for a mask.`, {
        where: 'setMask',
        fix: 'This is a fault of the caller: sync the slot with FEATURE.MASK first.',
      });
    }
    const words = Math.ceil(this.#shape.vocab / 32);
    if (mask.length !== words) {
      throw new KvantError('shape-mismatch', `A mask of ${mask.length} words, ${words} are needed.`, {
        where: 'setMask',
        fix: 'Give one bit for each id of the vocabulary.',
      });
    }
    this.#write(state.parts[STATE_PARTS.indexOf('mask')]!, mask);
  }

  release(slot: number): void {
    const state = this.#states.get(slot);
    if (state === undefined) return;
    this.#states.delete(slot);
    this.#space.give(state.stretch);
  }

  /** Errors: `invalid-step`, for a row that draws with features of state and was not synced for them. */
  check(inputs: StepInputs): void {
    for (let i = 0; i < inputs.outputCount; i++) {
      const wanted = inputs.sampling.features[i]! & STATE_FEATURES;
      const slot = inputs.outputSlot[i]!;
      if (wanted === 0 || slot === NO_SLOT || (wanted & ~(this.#states.get(slot)?.spec.features ?? 0)) === 0)
        continue;
      throw new KvantError('invalid-step', `Slot ${slot} draws with features that it was not synced for.`, {
        where: 'submit',
        fix: 'This is a fault of the caller: sync the slot before its first step.',
      });
    }
  }

  /** Notes what a step draws for; null if no slot holds state. Give it back with `retire`. */
  begin(inputs: StepInputs): Drawing | null {
    if (this.#states.size === 0) return null;
    const drawing = this.#drawings.pop();
    if (drawing === undefined) return null;
    drawing.count = inputs.outputCount;
    for (let i = 0; i < inputs.outputCount; i++) {
      drawing.slots[i] = inputs.outputSlot[i]!;
      drawing.positions[i] = inputs.sampling.position[i]!;
    }
    return drawing;
  }

  /** `ids` of the step, null if it failed. */
  retire(drawing: Drawing, ids: Uint32Array | null): void {
    for (let i = 0; ids !== null && i < drawing.count; i++) {
      const synced = this.#states.get(drawing.slots[i]!)?.synced;
      if (synced != null && ids[i] !== INVALID_TOKEN) synced.put(drawing.positions[i]!, ids[i]!);
    }
    this.#drawings.push(drawing);
  }

  dispose(): void {
    this.#states.clear();
    this.#space.dispose();
  }

  /** Takes in the tokens of a history behind the first `from`. What a step reads and clears by itself stays. */
  #append(state: SlotState, history: Int32Array, from: number): void {
    const { spec, layout, promptLength, parts } = state;
    for (const { part, at, words } of tailWrites(spec, layout, this.#shape, history, from, promptLength))
      this.#write(parts[STATE_PARTS.indexOf(part)]!, words, at);
  }

  #requireRoom(slot: number, history: Int32Array): void {
    if (history.length <= this.#shape.maxContext) return;
    this.release(slot);
    throw new KvantError('invalid-step', `A history of ${history.length} tokens was given to the sampler.`, {
      where: 'sync',
      fix: 'This is a fault of the caller: histories must keep the limits the program was compiled with.',
    });
  }

  #fill(state: SlotState, history: Int32Array, all: boolean): void {
    const { spec, layout, promptLength, parts } = state;
    for (const [part, words] of fillParts(spec, layout, this.#shape, history, promptLength, all))
      this.#write(parts[STATE_PARTS.indexOf(part)]!, words);
    const matched = parts[STATE_PARTS.indexOf('matched')]!;
    if (matched !== 0) {
      const encoder = this.#host.device.createCommandEncoder();
      encoder.clearBuffer(this.#space.buffer, matched * 16, Math.ceil(this.#shape.vocab / 4) * 16);
      this.#host.device.queue.submit([encoder.finish()]);
    }
  }

  #setMu(state: SlotState, mu: number): void {
    if ((state.spec.features & FEATURE.MIROSTAT) === 0) return;
    this.#write(state.parts[0]!, new Uint32Array(Float32Array.of(mu).buffer));
  }

  /** `at`: the vector where a part stands; `word`: from which of its words on. */
  #write(at: number, words: Uint32Array, word = 0): void {
    const { buffer } = this.#space;
    this.#host.device.queue.writeBuffer(buffer, at * 16 + word * 4, words as Uint32Array<ArrayBuffer>);
  }
}
