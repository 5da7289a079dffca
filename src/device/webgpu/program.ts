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
import type { Graph, Node, Tensor } from '../graph.js';
import { type KvCaches, keepsState } from '../kv.js';
import { planLifetimes } from '../lifetimes.js';
import { checkDrawOrder, type SamplerRows } from '../sampling.js';
import { checkSlice } from '../slices.js';
import type { StepInputs } from '../step.js';
import { checkHidden, type StepResult } from '../step-result.js';
import { attentionItems } from './attention-items.js';
import { USAGE } from './constants.js';
import { ownSlab } from './feature-slab.js';
import { findFusions } from './fusion.js';
import { type ExpertsHost, HostExperts } from './host-experts.js';
import { InputStaging } from './input-staging.js';
import type { Capabilities } from './kernel.js';
import type { GpuKvPool } from './kv-pool.js';
import type { Plan, StepPart } from './plan.js';
import { Plans, type PlansHost } from './plans.js';
import { ProgramBuffers, requireKept } from './program-buffers.js';
import { readRows } from './read-rows.js';
import { ReadbackRing, type ReadbackSlot } from './readback.js';
import { wideFrom, workgroupsOfTile } from './resolve-attend.js';
import type { Resources } from './resources.js';
import { GpuSamplerRows, samplerShape } from './sampler-rows.js';
import { StepPacker } from './step-buffer.js';
import { stepBounds } from './step-check.js';
import type { StepOrder } from './step-order.js';
import { idBytes, StepReadback } from './step-readback.js';
import { StepSubmitter, wrongOrder } from './step-submit.js';
import { resultOf, UnderWay } from './under-way.js';
import { WarmUp } from './warm-steps.js';

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

export class WebGpuProgram implements Program {
  readonly #sampler: GpuSamplerRows | null;
  /** The buffer of row state, or a stand-in while there is none, and the bind groups on it. */
  readonly #samplerBinding: { buffer: GPUBuffer; readonly groups: Map<string, GPUBindGroup> };
  readonly #host: ProgramHost;
  readonly #graph: Graph;
  readonly #caches: KvCaches<GpuKvPool> | null;
  readonly #samples: boolean;
  readonly #recurrent: boolean;
  readonly #packer: StepPacker;
  readonly #ring: ReadbackRing;
  readonly #readback: StepReadback;
  readonly #submitter: StepSubmitter;
  readonly #warmUp: WarmUp;
  readonly #resources: Resources;
  readonly #buffers: ProgramBuffers;
  readonly #staging: InputStaging;
  readonly #plans: Plans;
  readonly #underWay = new UnderWay();
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
    this.#caches = caches;
    const sample = graph.nodes.find((n) => n.op === 'sample');
    this.#samples = sample !== undefined;
    this.#recurrent = keepsState(caches);
    const bounds = stepBounds(graph, limits, caches);
    const tails = caches?.layers.some(({ tail }) => tail !== undefined);
    const maxItems = attentionItems(graph, limits, host.capabilities.bindingBytes, tails);
    const has = (...ops: Node['op'][]): boolean => graph.nodes.some(({ op }) => ops.includes(op));
    const recurs = has('short-conv', 'gated-delta', 'selective-scan');
    this.#packer = new StepPacker(limits, bounds, maxItems, has('attend'), recurs);

    const { allocator } = host;
    const fusions = findFusions(graph);
    const buffers = new ProgramBuffers(host, limits, planLifetimes(graph, fusions.keptAlive));
    this.#buffers = buffers;
    try {
      this.#staging = new InputStaging(host, buffers, graph);
      const usage = USAGE.STORAGE | USAGE.COPY_DST;
      this.#resources = {
        capabilities: host.capabilities,
        caches,
        maxContext: limits.maxContext,
        maxTokens: limits.maxTokens,
        maxSequences: limits.maxSequences,
        maxItems,
        maxOutputs: limits.maxOutputs,
        fusions,
        hostExperts: host.expertsDevice !== null,
        step: buffers.create('step', this.#packer.bytes, usage),
        ids: buffers.create('ids', idBytes(limits.maxOutputs), usage | USAGE.COPY_SRC),
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
              samplerShape(sample.logits, limits, bounds.positions),
              limits.inFlight,
              limits.maxOutputs,
            );
      const hidden = graph.hidden ? buffers.tensor(graph.hidden) : null;
      this.#readback = new StepReadback(graph, limits, this.#resources.ids, hidden);
      this.#ring = new ReadbackRing(allocator, host.faults, limits.inFlight, this.#readback.bytes);
      const { step } = this.#resources;
      this.#submitter = new StepSubmitter(host.device, host.order, step, this.#readback);
      this.#warmUp = new WarmUp(host.device, this.#packer, step, limits, maxItems);
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
    if (half === null) throw wrongOrder('No forward half is there to draw from.');
    this.#half = null;
    const { slot, tokens, outputs } = half;
    let words: number;
    try {
      this.#alive();
      if (tokens !== inputs.tokenCount || outputs !== inputs.outputCount)
        throw wrongOrder('The two halves of a step are not of the same size.');
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
    this.#buffers.write(tensor, data);
  }

  async fill(
    tensor: Tensor,
    rows: number,
    make: (room: Float32Array) => void | Promise<void>,
  ): Promise<void> {
    this.#alive();
    this.#use();
    await this.#staging.fill(tensor, rows, make);
  }

  clear(tensor: Tensor, rows: number): void {
    this.#alive();
    this.#use();
    this.#staging.clear(tensor, rows);
  }

  async read(tensor: Tensor, rows: number): Promise<Float32Array> {
    this.#alive();
    requireKept(this.#graph, tensor);
    return readRows(this.#host, this.#buffers.tensor(tensor), rows, tensor.cols);
  }

  store(tensor: Tensor, slab: FeatureSlab, place: FeaturePlace): void {
    this.#alive();
    requireKept(this.#graph, tensor);
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
    await this.#underWay.settled();
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
      const experts = this.#hostExperts;
      if (experts === null) {
        const step = { words: this.#packer.words.subarray(0, words), facts, hidden };
        this.#submitter.whole(slot, plan, step, part, slice);
        return null;
      }
      if (slice !== undefined) throw wrongOrder('A step with experts in host memory is not run in slices.');
      const step = {
        words: this.#packer.words.slice(0, words),
        facts: { ...facts },
        hidden: hidden.slice(),
      };
      return this.#submitter.inTurn(slot, plan, step, part, experts, after);
    } catch (error) {
      this.#ring.cancel(slot);
      throw error;
    }
  }

  /** The result of the step that was packed and submitted last, or will be: `submitted`. */
  #under(slot: ReadbackSlot, inputs: StepInputs, submitted: Promise<void> | null): Promise<StepResult> {
    const { facts } = this.#packer;
    const words = this.#readback.words(facts, inputs.hiddenCount);
    const meant = this.#readback.reader(facts, inputs.hiddenCount);
    const read =
      submitted === null ? this.#ring.read(slot, words) : this.#ring.readBehind(submitted, slot, words);
    const result = resultOf(read, meant, this.#sampler, inputs);
    this.#underWay.add(result);
    return result;
  }

  #undivided(): void {
    if (this.#half !== null) throw wrongOrder('The step before has not been drawn from.');
  }

  #plan(tokens: number, outputs: number): Plan {
    return this.#plans.get(tokens, outputs, this.#buffers);
  }

  /**
   * Runs what has never run yet: what a driver puts off until then is not put off until rows wait. Only while nothing else has run,
   * for it writes to the pool's first slot.
   */
  async #runOnce(plan: Plan): Promise<void> {
    if (this.#used || this.#caches?.pools.some(({ used }) => used) || !this.#warmUp.isCold(plan)) return;
    await this.#warmUp.run(plan);
    this.#alive();
  }

  #use(): void {
    this.#used = true;
    for (const pool of this.#caches?.pools ?? []) pool.used = true;
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
