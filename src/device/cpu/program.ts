import { KvantError } from '../../errors.js';
import { checkAdapters, HELD_ADAPTERS } from '../adapters.js';
import type { Program, ProgramLimits, StepSlice } from '../device.js';
import type { FeaturePlace, FeatureSlab } from '../feature-slab.js';
import { checkFeatureTokens } from '../feature-tokens.js';
import type { Tensor } from '../graph.js';
import { type KvCaches, keepsState, kvReach } from '../kv.js';
import { checkLookAhead } from '../look-ahead.js';
import { checkRotary } from '../rotary-positions.js';
import { checkDrawOrder, featuresOf, requireFeatures } from '../sampling.js';
import { checkSlice } from '../slices.js';
import { NO_SLOT, type StepInputs } from '../step.js';
import { checkHidden, hiddenRoom, StepResult } from '../step-result.js';
import type { Compiled } from './compile.js';
import { deviceLost, invalidStep } from './errors.js';
import { ownSlab } from './feature-slab.js';
import type { Allocation, MemorySet } from './memory.js';
import type { ThreadPool } from './pool.js';
import { resultWords } from './sample-commands.js';
import { CpuSamplerRows } from './sampler-rows.js';
import { StepSlot } from './step-slot.js';

/**
 * A compiled graph. Kernels read the counts of rows while they run, so one list of commands does for steps of any size.
 *
 * The result that `submit` resolves with lies in a buffer that is used again `2 · inFlight` steps later.
 */
export class CpuProgram implements Program {
  readonly sampler: CpuSamplerRows | null;
  readonly #set: MemorySet;
  readonly #threads: ThreadPool;
  readonly #limits: ProgramLimits;
  readonly #caches: KvCaches | null;
  readonly #recurrent: boolean;
  readonly #compiled: Compiled;
  readonly #slots: readonly StepSlot[];
  readonly #owned: readonly Allocation[];
  readonly #onDisposed: () => void;
  #next = 0;
  #pending = 0;
  /** The step whose `sample` is still to come. */
  #half: StepSlot | null = null;
  #onIdle: (() => void) | null = null;
  #disposed = false;

  constructor(
    set: MemorySet,
    threads: ThreadPool,
    compiled: Compiled,
    limits: ProgramLimits,
    caches: KvCaches | null,
    onDisposed: () => void,
  ) {
    this.#onDisposed = onDisposed;
    this.#set = set;
    this.#threads = threads;
    this.#compiled = compiled;
    this.#limits = limits;
    this.#caches = caches;
    this.#recurrent = keepsState(caches);
    const sampler = compiled.sampler === null ? null : new CpuSamplerRows(set, compiled.sampler);
    this.sampler = sampler;
    const first = set.memory(0);
    const owned: Allocation[] = [...compiled.owned];
    const onSettled = (): void => this.#settled();
    const hiddenCols = compiled.hidden?.cols ?? 0;
    this.#slots = Array.from({ length: Math.max(1, limits.inFlight) }, () => {
      const inbox = set.allocateIn(first, compiled.layout.words * 4);
      const second = set.allocateIn(first, compiled.layout.words * 4);
      const hiddenWords = hiddenRoom(compiled, limits) * hiddenCols;
      const room = resultWords(limits.maxOutputs) + hiddenWords;
      const result = set.allocateIn(first, room * 4);
      owned.push(inbox, second, result);
      return new StepSlot(
        [inbox, second],
        result,
        compiled.layout,
        sampler,
        limits.maxOutputs,
        hiddenCols,
        hiddenWords,
        onSettled,
      );
    });
    this.#owned = owned;
  }

  async prepare(_tokens: number, _outputs: number): Promise<void> {}

  submit(inputs: StepInputs, slice?: StepSlice): Promise<StepResult> {
    try {
      const descriptor = slice === undefined ? this.#compiled.descriptor : this.#slice(slice);
      if (descriptor === 0) return Promise.resolve(new StepResult(new Uint32Array(0), 0));
      const slot = this.#take(inputs);
      this.#threads.submit(descriptor, slot.fill(inputs, 0), slot.result, slot);
      this.#pending++;
      return slot.promise();
    } catch (error) {
      return Promise.reject(error);
    }
  }

  forward(inputs: StepInputs): void {
    const slot = this.#take(inputs);
    this.#threads.submit(this.#compiled.forward, slot.fill(inputs, 0), slot.result, slot.begin());
    this.#pending++;
    this.#half = slot;
  }

  async computed(): Promise<void> {
    await this.#half?.computed;
  }

  sample(inputs: StepInputs): Promise<StepResult> {
    const slot = this.#half;
    try {
      if (slot === null) throw invalidStep('No forward half is there to draw from.');
      this.#half = null;
      if (!slot.isOf(inputs)) throw invalidStep('The two halves of a step are not of the same size.');
      this.#threads.check();
      this.#check(inputs);
      this.#threads.submit(this.#compiled.sample, slot.fill(inputs, 1), slot.result, slot);
      return slot.promise();
    } catch (error) {
      if (slot !== null) this.#settled();
      return Promise.reject(error);
    }
  }

  write(tensor: Tensor, data: Float32Array): void {
    this.#input(tensor, data.length).set(data);
  }

  async fill(
    tensor: Tensor,
    rows: number,
    make: (room: Float32Array) => void | Promise<void>,
  ): Promise<void> {
    await make(this.#input(tensor, rows * tensor.cols));
  }

  clear(tensor: Tensor, rows: number): void {
    this.#input(tensor, rows * tensor.cols).fill(0);
  }

  async read(tensor: Tensor, rows: number): Promise<Float32Array> {
    this.#threads.check();
    const { memory, at } = this.#compiled.place(tensor);
    if (!(rows >= 0 && rows <= this.#rows(tensor))) {
      throw new KvantError('shape-mismatch', `read: ${rows} rows of a tensor of ${this.#rows(tensor)}.`);
    }
    return new Float32Array(memory.f32(at, rows * tensor.cols));
  }

  store(tensor: Tensor, slab: FeatureSlab, place: FeaturePlace): void {
    this.#threads.check();
    const { memory, at } = this.#compiled.place(tensor);
    const end = (place.from ?? 0) + place.rows;
    if (end > this.#rows(tensor))
      throw new KvantError('shape-mismatch', `store: row ${end} of ${this.#rows(tensor)}.`);
    ownSlab(this.#set, slab).take(memory, at, tensor.cols, place);
  }

  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    const half = this.#half;
    if (half !== null) {
      this.#half = null;
      await half.computed;
      this.#settled();
    }
    if (this.#pending > 0) {
      await new Promise<void>((resolve) => {
        this.#onIdle = resolve;
      });
    }
    this.sampler?.dispose();
    this.#onDisposed();
    for (const allocation of this.#owned) this.#set.free(allocation);
  }

  #slice(slice: StepSlice): number {
    checkSlice(slice, this.sampler !== null);
    // The descriptor of the one before is written over.
    if (this.#pending > 0) throw invalidStep('The part of the step before has not retired.');
    return this.#compiled.slice(slice);
  }

  #settled(): void {
    this.#pending--;
    if (this.#pending === 0) this.#onIdle?.();
  }

  /** Room for one more step, which has been checked. */
  #take(inputs: StepInputs): StepSlot {
    this.#threads.check();
    if (this.#half !== null) throw invalidStep('The step before has not been drawn from.');
    if (this.#pending >= this.#slots.length) {
      throw invalidStep(`${this.#pending} steps are under way, ${this.#slots.length} are allowed.`);
    }
    this.#check(inputs);
    const slot = this.#slots[this.#next]!;
    this.#next = (this.#next + 1) % this.#slots.length;
    return slot;
  }

  #input(tensor: Tensor, length: number): Float32Array {
    const { memory, at } = this.#compiled.place(tensor);
    const most = this.#rows(tensor) * tensor.cols;
    if (length > most)
      throw new KvantError('shape-mismatch', `write: ${length} values for a tensor of at most ${most}.`);
    return memory.f32(at, length);
  }

  #rows(tensor: Tensor): number {
    return tensor.rows === 'tokens' ? this.#limits.maxTokens : this.#limits.maxOutputs;
  }

  /** A step outside the limits would write outside its arrays. */
  #check(step: StepInputs): void {
    const { maxTokens, maxSequences, maxOutputs, maxContext } = this.#limits;
    if (this.#disposed) throw deviceLost('The program was disposed of.');
    if (step.tokenCount > maxTokens || step.sequenceCount > maxSequences || step.outputCount > maxOutputs) {
      throw invalidStep(
        `A step of ${step.tokenCount} tokens, ${step.sequenceCount} sequences and ${step.outputCount} outputs; the limits are ${maxTokens}, ${maxSequences} and ${maxOutputs}.`,
      );
    }
    const caches = this.#caches;
    const context = caches === null ? maxContext : Math.min(maxContext, kvReach(caches));
    let tokens = 0;
    for (let s = 0; s < step.sequenceCount; s++) {
      if (step.seqStart[s] !== tokens)
        throw invalidStep(`Sequence ${s} does not start behind the one before.`);
      tokens += step.seqLength[s]!;
      const end = step.seqPosition[s]! + step.seqLength[s]!;
      if (end > context) throw invalidStep(`Sequence ${s} reaches position ${end} of ${context}.`);
      if (step.seqSlot[s]! >= this.#compiled.slots) {
        throw invalidStep(`State slot ${step.seqSlot[s]} is not one of ${this.#compiled.slots}.`);
      }
    }
    checkRotary(step, this.#compiled.rotaryReach);
    checkAdapters(step, HELD_ADAPTERS);
    checkLookAhead(step, this.#compiled.layout.visible !== null);
    checkFeatureTokens(step, this.#compiled.featureRows);
    if (this.sampler !== null) checkDrawOrder(step, this.#recurrent);
    checkHidden(step, this.#compiled);
    requireFeatures(featuresOf(step), this.sampler?.features ?? 0, 'CPU');
    if (tokens !== step.tokenCount) {
      throw invalidStep(`${step.tokenCount} tokens, but the sequences have ${tokens}.`);
    }
    for (let r = 0; r < step.outputCount; r++) {
      if (step.outputs[r]! >= tokens)
        throw invalidStep(`Output ${r} names token ${step.outputs[r]} of ${tokens}.`);
      const slot = step.outputSlot[r]!;
      if (slot !== NO_SLOT && this.sampler?.holds(slot, step.sampling.features[r]!) === false)
        throw invalidStep(`Output ${r} wants features that slot ${slot} was not synced with.`);
    }
  }
}
