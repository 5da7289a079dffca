/**
 * A graph made ready for the GPU.
 *
 * Activations are f32, a row padded to a multiple of four, and lie where the lifetime planner puts them; the buffers
 * are as large as the largest step and serve all plans (plans.ts). A step writes one small buffer, encodes one pass,
 * copies the ids and submits.
 */

import { KvantError } from '../../errors.js';
import type { Program, ProgramLimits, StepSlice } from '../device.js';
import type { FeaturePlace, FeatureSlab } from '../feature-slab.js';
import { featureRowsOf } from '../feature-tokens.js';
import type { Graph, Tensor } from '../graph.js';
import { type KvCaches, keepsState, kvReach } from '../kv.js';
import { planLifetimes } from '../lifetimes.js';
import { looksAhead } from '../look-ahead.js';
import { rotaryReach } from '../rotary-positions.js';
import { checkDrawOrder, FEATURE, RECORD_WORDS, type SamplerRows } from '../sampling.js';
import { checkSlice } from '../slices.js';
import type { StepInputs } from '../step.js';
import { checkHidden, hiddenRoom, StepResult } from '../step-result.js';
import { attentionItems } from './attention-items.js';
import { USAGE } from './constants.js';
import { ownSlab } from './feature-slab.js';
import { findFusions } from './fusion.js';
import { type ExpertsHost, HostExperts } from './host-experts.js';
import type { Capabilities, StepFacts } from './kernel.js';
import type { GpuKvPool } from './kv-pool.js';
import type { Plan, StepPart } from './plan.js';
import { Plans, type PlansHost } from './plans.js';
import { ProgramBuffers } from './program-buffers.js';
import { readRows } from './read-rows.js';
import { ReadbackRing, type ReadbackSlot } from './readback.js';
import { wideFrom, workgroupsOfTile } from './resolve.js';
import { type Resources, strideOf } from './resources.js';
import { type Drawing, GpuSamplerRows } from './sampler-rows.js';
import { StepPacker, WIDE_SPLITS } from './step-buffer.js';
import type { StepBounds } from './step-check.js';
import type { StepOrder } from './step-order.js';
import { warmItems, warmSteps } from './warm-steps.js';

export interface ProgramHost extends PlansHost, ExpertsHost {
  readonly capabilities: Capabilities;
  readonly order: StepOrder;
}

/** A step that was computed and not drawn from. */
interface Half {
  readonly slot: ReadbackSlot;
  readonly tokens: number;
  readonly outputs: number;
  /** Settles when it has been submitted; null: it has been. */
  readonly submitted: Promise<void> | null;
}

/** A step as it goes to the device, whatever becomes of what it was made of. */
interface Packed {
  readonly words: Uint32Array;
  readonly facts: StepFacts;
  readonly hidden: Uint32Array;
}

export class WebGpuProgram implements Program {
  readonly #sampler: GpuSamplerRows | null;
  /** The buffer of row state, or a stand-in while there is none, and the bind groups on it. */
  readonly #samplerBinding: { buffer: GPUBuffer; readonly groups: Map<string, GPUBindGroup> };
  readonly #host: ProgramHost;
  readonly #graph: Graph;
  readonly #limits: ProgramLimits;
  readonly #caches: KvCaches<GpuKvPool> | null;
  readonly #samples: boolean;
  readonly #recurrent: boolean;
  readonly #packer: StepPacker;
  readonly #ring: ReadbackRing;
  /** Bytes of a readback before its hidden rows. */
  readonly #hiddenAt: number;
  readonly #resources: Resources;
  readonly #buffers: ProgramBuffers;
  readonly #plans: Plans;
  readonly #underWay = new Set<Promise<unknown>>();
  /** Pipelines that have run. */
  readonly #warm = new Set<GPUComputePipeline>();
  /** Null: all experts are on the device. */
  #hostExperts: HostExperts | null = null;
  /** The forward half whose `sample` is still to come. */
  #half: Half | null = null;
  /** Something has been written or computed that matters to somebody. */
  #used = false;
  #disposed = false;

  /** Allocates and checks; resolves when there was room for it all. */
  static async create(
    host: ProgramHost,
    graph: Graph,
    limits: ProgramLimits,
    caches: KvCaches<GpuKvPool> | null,
  ): Promise<WebGpuProgram> {
    const program = new WebGpuProgram(host, graph, limits, caches);
    try {
      // Every node for every bucket, so that no plan needs a buffer that is not made here.
      const buffers = program.#buffers;
      buffers.addScratch(program.#plans.resolveAll((words) => buffers.params(words)));
      program.#hostExperts = await HostExperts.create(host, graph, limits, (t) => buffers.tensor(t));
      // Whoever learns that there is no room gives the pool back: nothing may be under way on it then.
      await host.allocator.settle();
      for (const pool of caches?.pools ?? []) await pool.compiled();
    } catch (error) {
      await program.#free();
      throw error;
    }
    return program;
  }

  private constructor(
    host: ProgramHost,
    graph: Graph,
    limits: ProgramLimits,
    caches: KvCaches<GpuKvPool> | null,
  ) {
    this.#host = host;
    this.#graph = graph;
    this.#limits = limits;
    this.#caches = caches;
    const sample = graph.nodes.find((n) => n.op === 'sample');
    this.#samples = sample !== undefined;
    this.#recurrent = keepsState(caches);
    const bounds: StepBounds = {
      slots: caches?.pools[0]?.spec.slots ?? Math.max(limits.maxSequences, limits.maxOutputs),
      positions: caches === null ? Number.POSITIVE_INFINITY : kvReach(caches),
      rotary: rotaryReach(graph),
      features: featureRowsOf(graph),
      ahead: looksAhead(graph),
    };
    const maxItems = attentionItems(graph, limits, host.capabilities.bindingBytes);
    const attends = graph.nodes.some((n) => n.op === 'attend');
    const recurs = graph.nodes.some(
      (n) => n.op === 'short-conv' || n.op === 'gated-delta' || n.op === 'selective-scan',
    );
    this.#packer = new StepPacker(limits, bounds, maxItems, attends, recurs);

    const { allocator } = host;
    const fusions = findFusions(graph);
    const buffers = new ProgramBuffers(host, limits, planLifetimes(graph, fusions.held));
    this.#buffers = buffers;
    try {
      // Ids, and the records behind them.
      const idBytes = Math.max(16, limits.maxOutputs * (1 + RECORD_WORDS) * 4);
      const usage = USAGE.STORAGE | USAGE.COPY_DST;
      this.#resources = {
        capabilities: host.capabilities,
        caches,
        maxContext: limits.maxContext,
        maxItems,
        maxOutputs: limits.maxOutputs,
        fusions,
        hostExperts: host.expertsDevice !== null,
        step: buffers.create('step', this.#packer.bytes, usage),
        ids: buffers.create('ids', idBytes, usage | USAGE.COPY_SRC),
        lastToken:
          caches?.pools[0]?.lastToken ?? buffers.create('last tokens', (bounds.slots + 1) * 4, usage),
        tensor: (tensor) => buffers.tensor(tensor),
        rope: (table) => buffers.rope(table),
        joined: (label, parts) => buffers.joined(label, parts),
      };
      this.#packer.wideFrom = wideFrom(graph.nodes, this.#resources);
      this.#packer.tileWorkgroups = workgroupsOfTile(graph.nodes, this.#resources);
      const none = buffers.create('no sampler state', 16, USAGE.STORAGE);
      this.#samplerBinding = { buffer: none, groups: new Map() };
      this.#plans = new Plans(host, graph, limits, this.#resources, this.#samplerBinding);
      this.#sampler =
        sample === undefined
          ? null
          : new GpuSamplerRows(
              {
                device: host.device,
                allocator,
                bindingBytes: host.capabilities.bindingBytes,
                prepare: () => this.#prepareFeatures(),
                onBuffer: (buffer) => this.#rebind(buffer ?? none),
              },
              {
                vocab: sample.logits.cols,
                stride: strideOf(sample.logits.cols),
                maxContext: Math.min(limits.maxContext, bounds.positions),
              },
              limits.inFlight,
              limits.maxOutputs,
            );
      const hiddenBytes = graph.hidden ? hiddenRoom(graph, limits) * strideOf(graph.hidden.cols) * 4 : 0;
      this.#hiddenAt = idBytes;
      this.#ring = new ReadbackRing(allocator, host.faults, limits.inFlight, idBytes + hiddenBytes);
    } catch (error) {
      buffers.free();
      throw error;
    }
  }

  async prepare(tokens: number, outputs: number): Promise<void> {
    this.#alive();
    const plan = this.#plan(tokens, outputs);
    await plan.prepare();
    await this.#runOnce(plan);
  }

  submit(inputs: StepInputs, slice?: StepSlice): Promise<StepResult> {
    this.#alive();
    this.#undivided();
    if (slice !== undefined) checkSlice(slice, this.#samples);
    const words = this.#pack(inputs);
    const slot = this.#ring.take();
    const submitted = this.#encode(slot, words, 'whole', inputs, slice);
    return this.#under(slot, inputs, submitted);
  }

  forward(inputs: StepInputs): void {
    this.#alive();
    this.#undivided();
    const words = this.#pack(inputs);
    const slot = this.#ring.take();
    const submitted = this.#encode(slot, words, 'forward', inputs);
    // What went wrong is told by `sample`.
    submitted?.catch(() => {});
    this.#half = { slot, tokens: inputs.tokenCount, outputs: inputs.outputCount, submitted };
  }

  async computed(): Promise<void> {
    if (this.#half === null) return;
    await this.#half.submitted?.catch(() => {});
    // What went wrong reaches `sample` through the faults.
    await this.#host.device.queue.onSubmittedWorkDone().catch(() => {});
  }

  sample(inputs: StepInputs): Promise<StepResult> {
    const half = this.#half;
    if (half === null) throw misuse('No forward half is there to draw from.');
    this.#half = null;
    const { slot, tokens, outputs } = half;
    let words: number;
    try {
      this.#alive();
      if (tokens !== inputs.tokenCount || outputs !== inputs.outputCount)
        throw misuse('The two halves of a step are not of the same size.');
      words = this.#pack(inputs);
    } catch (error) {
      this.#ring.cancel(slot);
      throw error;
    }
    const submitted = this.#encode(slot, words, 'sample', inputs, undefined, half.submitted);
    return this.#under(slot, inputs, submitted);
  }

  write(tensor: Tensor, data: Float32Array): void {
    this.#alive();
    this.#use();
    const rows = data.length / tensor.cols;
    if (!Number.isInteger(rows) || rows > this.#buffers.maxRows(tensor.rows)) {
      throw new KvantError('shape-mismatch', `${data.length} numbers for rows of ${tensor.cols}.`, {
        where: 'write',
        fix: 'Write whole rows, no more than the program was compiled for.',
      });
    }
    const stride = strideOf(tensor.cols);
    let source = data as Float32Array<ArrayBuffer>;
    if (stride !== tensor.cols) {
      source = new Float32Array(rows * stride);
      for (let r = 0; r < rows; r++) {
        source.set(data.subarray(r * tensor.cols, (r + 1) * tensor.cols), r * stride);
      }
    }
    this.#host.device.queue.writeBuffer(this.#buffers.tensor(tensor), 0, source);
  }

  async read(tensor: Tensor, rows: number): Promise<Float32Array> {
    this.#alive();
    this.#kept(tensor);
    return readRows(this.#host, this.#buffers.tensor(tensor), rows, tensor.cols);
  }

  store(tensor: Tensor, slab: FeatureSlab, place: FeaturePlace): void {
    this.#alive();
    this.#kept(tensor);
    const most = this.#buffers.maxRows(tensor.rows);
    const end = (place.from ?? 0) + place.rows;
    if (end > most) throw new KvantError('shape-mismatch', `store: row ${end} of ${most}.`);
    ownSlab(slab).take(this.#buffers.tensor(tensor), tensor.cols, place);
  }

  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    if (this.#half !== null) {
      await this.computed();
      this.#ring.cancel(this.#half.slot);
      this.#half = null;
    }
    await Promise.all(this.#underWay);
    await this.#free();
  }

  get sampler(): SamplerRows | null {
    return this.#sampler;
  }

  /** The launches of a bucket, for people. */
  describe(tokens: number, outputs: number): string[] {
    return this.#plan(tokens, outputs).labels();
  }

  /** Packs a step for the buffer and answers its words. */
  #pack(inputs: StepInputs): number {
    if (this.#samples) checkDrawOrder(inputs, this.#recurrent);
    const words = this.#packer.pack(inputs, this.#sampler?.partsOf);
    checkHidden(inputs, this.#graph);
    if (this.#packer.facts.features !== 0) this.#sampler?.check(inputs);
    return words;
  }

  /**
   * Submits what has been packed, or a half of it; where the host computes experts, as far as it can be, and answers what settles when
   * all of it has been. `after`: what it waits for first.
   */
  #encode(
    slot: ReadbackSlot,
    words: number,
    part: StepPart,
    inputs: StepInputs,
    slice?: StepSlice,
    after: Promise<void> | null = null,
  ): Promise<void> | null {
    try {
      const { facts } = this.#packer;
      const plan = this.#plan(facts.tokens, facts.outputs);
      plan.compile();
      this.#use();
      const hidden = inputs.hiddenRows.subarray(0, inputs.hiddenCount);
      if (this.#hostExperts === null) {
        const step = { words: this.#packer.words.subarray(0, words), facts, hidden };
        this.#submitWhole(slot, plan, step, part, slice);
        return null;
      }
      if (slice !== undefined) throw misuse('A step with experts in host memory is not run in slices.');
      const step = {
        words: this.#packer.words.slice(0, words),
        facts: { ...facts },
        hidden: hidden.slice(),
      };
      return this.#submitInTurn(slot, plan, step, part, after);
    } catch (error) {
      this.#ring.cancel(slot);
      throw error;
    }
  }

  #submitWhole(slot: ReadbackSlot, plan: Plan, step: Packed, part: StepPart, slice?: StepSlice): void {
    const { device } = this.#host;
    this.#writeStep(step);
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    plan.encode(pass, step.facts, part, slice);
    pass.end();
    // The results are copied behind the draw.
    if (part !== 'forward') this.#copyResults(encoder, slot, step);
    device.queue.submit([encoder.finish()]);
  }

  /** Behind the steps before it: stretch by stretch, with the host's part between two of them. */
  #submitInTurn(
    slot: ReadbackSlot,
    plan: Plan,
    step: Packed,
    part: StepPart,
    after: Promise<void> | null,
  ): Promise<void> {
    const { device, order } = this.#host;
    const experts = this.#hostExperts!;
    const last = part === 'sample' ? 0 : experts.cuts;
    const { facts } = step;
    return order.step(async () => {
      // Without its first half there is nothing to draw from.
      if (after !== null) await after;
      this.#writeStep(step);
      for (let stretch = 0; stretch <= last; stretch++) {
        const encoder = device.createCommandEncoder();
        const pass = encoder.beginComputePass();
        plan.encodeStretch(pass, facts, part, stretch);
        pass.end();
        const rows = stretch < last ? facts[experts.rowsAt(stretch)] : 0;
        if (rows > 0) experts.bring(encoder, stretch, rows);
        if (stretch === last && part !== 'forward') this.#copyResults(encoder, slot, step);
        device.queue.submit([encoder.finish()]);
        if (rows > 0) await experts.compute(stretch, rows);
      }
    });
  }

  #writeStep({ words }: Packed): void {
    this.#host.device.queue.writeBuffer(this.#resources.step, 0, words as Uint32Array<ArrayBuffer>);
  }

  #copyResults(encoder: GPUCommandEncoder, slot: ReadbackSlot, { facts, hidden }: Packed): void {
    const bytes = Math.max(16, resultWords(facts) * 4);
    encoder.copyBufferToBuffer(this.#resources.ids, 0, slot.buffer, 0, bytes);
    if (hidden.length > 0) this.#copyHidden(encoder, slot, hidden);
  }

  /** The result of the step that was packed and submitted last, or will be: `submitted`. */
  #under(slot: ReadbackSlot, inputs: StepInputs, submitted: Promise<void> | null): Promise<StepResult> {
    const { facts } = this.#packer;
    const count = this.#samples ? resultWords(facts) : 0;
    const outputs = this.#samples ? facts.outputs : 0;
    const hidden = inputs.hiddenCount;
    const words = hidden === 0 ? count : this.#wordsWithHidden(hidden);
    const read = submitted === null ? this.#ring.read(slot, words) : this.#readBehind(submitted, slot, words);
    const result = this.#result(read, count, outputs, hidden, this.#sampler?.begin(inputs) ?? null);
    const settled = result.then(
      () => {},
      () => {},
    );
    this.#underWay.add(settled);
    void settled.then(() => this.#underWay.delete(settled));
    return result;
  }

  async #readBehind(submitted: Promise<void>, slot: ReadbackSlot, words: number): Promise<Uint32Array> {
    try {
      await submitted;
    } catch (error) {
      this.#ring.cancel(slot);
      throw slot.error ?? error;
    }
    return this.#ring.read(slot, words);
  }

  #kept(tensor: Tensor): void {
    if (this.#graph.kept.includes(tensor)) return;
    throw new KvantError('tensor-not-kept', `Tensor ${tensor.id} was not kept.`, {
      where: 'read',
      fix: 'Call ops.keep on it while recording.',
    });
  }

  /** Copies the hidden rows that are asked for behind the ids, neighbours at once. */
  #copyHidden(encoder: GPUCommandEncoder, slot: ReadbackSlot, rows: Uint32Array): void {
    const tensor = this.#graph.hidden!;
    const buffer = this.#buffers.tensor(tensor);
    const bytes = strideOf(tensor.cols) * 4;
    for (let i = 0, run = 1; i < rows.length; i += run, run = 1) {
      const first = rows[i]!;
      while (i + run < rows.length && rows[i + run] === first + run) run++;
      encoder.copyBufferToBuffer(buffer, first * bytes, slot.buffer, this.#hiddenAt + i * bytes, run * bytes);
    }
  }

  #wordsWithHidden(rows: number): number {
    return this.#hiddenAt / 4 + rows * strideOf(this.#graph.hidden!.cols);
  }

  /** `[rows, n]` of a readback, without the padding of rows. */
  #hiddenRows(words: Uint32Array, rows: number): Float32Array {
    const { cols } = this.#graph.hidden!;
    const stride = strideOf(cols);
    const out = new Float32Array(rows * cols);
    const floats = new Float32Array(words.buffer, words.byteOffset + this.#hiddenAt);
    for (let r = 0; r < rows; r++) out.set(floats.subarray(r * stride, r * stride + cols), r * cols);
    return out;
  }

  #undivided(): void {
    if (this.#half !== null) throw misuse('The step before has not been drawn from.');
  }

  #plan(tokens: number, outputs: number): Plan {
    return this.#plans.get(tokens, outputs, this.#buffers);
  }

  /**
   * Runs what has never run yet, once, on the smallest steps there are: what a driver puts off until then is not put off until rows wait.
   * Only while nothing else has run: the steps leave a token at the first place of the pool's first slot.
   */
  async #runOnce(plan: Plan): Promise<void> {
    if (this.#used || this.#caches?.pools.some(({ used }) => used) || !plan.isCold(this.#warm)) return;
    const { device } = this.#host;
    for (const inputs of warmSteps(this.#limits)) {
      const words = this.#packer.pack(inputs);
      const { facts } = this.#packer;
      device.queue.writeBuffer(this.#resources.step, 0, this.#packer.words, 0, words);
      const encoder = device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      // A workgroup of each will do; tiles want all that walk one.
      plan.encodeCold(pass, facts, this.#warm, facts.tiles === 0);
      // A tile in parts is another kernel, and so are items by how many there are, and how wide.
      if (facts.tiles > 0) plan.encodeCold(pass, { ...facts, tileParts: 2 }, this.#warm, false);
      for (const itemSplits of facts.items > 0 ? [1, WIDE_SPLITS] : [])
        for (const items of warmItems(this.#resources.maxItems))
          plan.encodeCold(pass, { ...facts, items, itemSplits }, this.#warm, true);
      pass.end();
      device.queue.submit([encoder.finish()]);
    }
    await device.queue.onSubmittedWorkDone();
    this.#alive();
  }

  #use(): void {
    this.#used = true;
    for (const pool of this.#caches?.pools ?? []) pool.used = true;
  }

  /** What the words of a step mean. Before the caller has it, the tokens that state has taken in are noted. */
  async #result(
    read: Promise<Uint32Array>,
    count: number,
    outputs: number,
    hidden: number,
    drawing: Drawing | null,
  ): Promise<StepResult> {
    let words: Uint32Array | null = null;
    try {
      words = await read;
      if (hidden === 0) return new StepResult(words, outputs);
      return new StepResult(words.subarray(0, count), outputs, this.#hiddenRows(words, hidden));
    } finally {
      if (drawing !== null) this.#sampler?.retire(drawing, words);
    }
  }

  async #prepareFeatures(): Promise<void> {
    this.#alive();
    await this.#plans.prepareFeatures();
  }

  #rebind(buffer: GPUBuffer): void {
    this.#samplerBinding.buffer = buffer;
    this.#samplerBinding.groups.clear();
    this.#plans.rebind();
  }

  #alive(): void {
    this.#host.faults.check();
    if (!this.#disposed) return;
    throw new KvantError('disposed', 'The program has been disposed of.', { fix: 'Compile it again.' });
  }

  async #free(): Promise<void> {
    this.#buffers.free();
    this.#sampler?.dispose();
    this.#ring.dispose();
    this.#plans.clear();
    await this.#hostExperts?.dispose();
  }
}

function misuse(message: string): KvantError {
  return new KvantError('invalid-step', message, {
    where: 'submit',
    fix: 'This is a fault of the caller: `sample` follows `forward`, with the same inputs.',
  });
}

/** Words of a step's result: an id for each output, and records if some row asks for them. */
function resultWords({ outputs, features }: StepFacts): number {
  return outputs * (features & (FEATURE.LOGPROBS | FEATURE.MIROSTAT) ? 1 + RECORD_WORDS : 1);
}
