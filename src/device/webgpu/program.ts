/**
 * A graph made ready for the GPU.
 *
 * Activations are f32, a row padded to a multiple of four, and lie where the lifetime planner puts them; the buffers
 * are as large as the largest step and serve all plans. A plan is made for each bucket of (tokens, outputs): powers
 * of two, and the limits themselves. A step writes one small buffer, encodes one pass, copies the ids and submits.
 */

import { KvantError } from '../../errors.js';
import type { Program, ProgramLimits } from '../device.js';
import type { Graph, RowKind, Tensor } from '../graph.js';
import { planLifetimes } from '../lifetimes.js';
import type { RopeTable } from '../rope.js';
import { FEATURE, RECORD_WORDS, type SamplerRows } from '../sampling.js';
import type { StepInputs } from '../step.js';
import type { Allocator } from './allocator.js';
import { MAP_MODE_READ, USAGE } from './constants.js';
import type { Faults } from './faults.js';
import { findFusions } from './fusion.js';
import type { Capabilities } from './kernel.js';
import { itemScratchBytes } from './kernels/attend.js';
import type { GpuKvPool } from './kv-pool.js';
import type { Pipelines } from './pipelines.js';
import { Plan } from './plan.js';
import { ReadbackRing } from './readback.js';
import {
  type Bound,
  type Bucket,
  type Resources,
  resolveNode,
  strideOf,
  wideFrom,
  workgroupsOfTile,
} from './resolve.js';
import { type Drawing, GpuSamplerRows } from './sampler-rows.js';
import { ATTENTION_SPLIT, type StepBounds, StepPacker } from './step-buffer.js';

export interface ProgramHost {
  readonly device: GPUDevice;
  readonly allocator: Allocator;
  readonly pipelines: Pipelines;
  readonly faults: Faults;
  readonly capabilities: Capabilities;
  /** Called for every plan made. */
  readonly onPlan: () => void;
}

/** Scratch that partial sums of attention may take. What does not fit is attended to without splitting. */
const PARTIALS_BYTES = 128 * 1024 * 1024;

export class WebGpuProgram implements Program {
  readonly #sampler: GpuSamplerRows | null;
  /** The buffer of row state, or a stand-in while there is none, and the bind groups on it. */
  readonly #samplerBinding: { buffer: GPUBuffer; readonly groups: Map<string, GPUBindGroup> };
  readonly #host: ProgramHost;
  readonly #graph: Graph;
  readonly #limits: ProgramLimits;
  readonly #samples: boolean;
  readonly #packer: StepPacker;
  readonly #ring: ReadbackRing;
  readonly #resources: Resources;
  readonly #own: GPUBuffer[] = [];
  readonly #scratch = new Map<string, GPUBuffer>();
  readonly #params = new Map<string, GPUBuffer>();
  readonly #groups = new Map<string, GPUBindGroup>();
  readonly #plans = new Map<number, Plan>();
  readonly #bounds = new Map<string, Bound[]>();
  readonly #storages: readonly GPUBuffer[];
  readonly #storageOf: Int32Array;
  readonly #underWay = new Set<Promise<unknown>>();
  #disposed = false;

  /** Allocates and checks; resolves when there was room for it all. */
  static async create(
    host: ProgramHost,
    graph: Graph,
    limits: ProgramLimits,
    pool: GpuKvPool | null,
  ): Promise<WebGpuProgram> {
    const program = new WebGpuProgram(host, graph, limits, pool);
    try {
      program.#allocateScratch();
      await host.allocator.settle();
    } catch (error) {
      program.#free();
      throw error;
    }
    return program;
  }

  private constructor(host: ProgramHost, graph: Graph, limits: ProgramLimits, pool: GpuKvPool | null) {
    this.#host = host;
    this.#graph = graph;
    this.#limits = limits;
    const sample = graph.nodes.find((n) => n.op === 'sample');
    this.#samples = sample !== undefined;
    const bounds: StepBounds = {
      slots: pool?.spec.slots ?? Math.max(limits.maxSequences, limits.maxOutputs),
      positions:
        pool === null ? Number.POSITIVE_INFINITY : pool.spec.maxBlocksPerSlot * pool.spec.blockTokens,
    };
    const maxItems = attentionItems(graph, limits, host.capabilities.bindingBytes);
    const attends = graph.nodes.some((n) => n.op === 'attend');
    this.#packer = new StepPacker(limits, bounds, maxItems, attends);

    const { allocator } = host;
    const usage = USAGE.STORAGE | USAGE.COPY_DST | USAGE.COPY_SRC;
    const fusions = findFusions(graph);
    const lifetimes = planLifetimes(graph, fusions.held);
    this.#storageOf = lifetimes.storageOf;
    try {
      this.#storages = lifetimes.storages.map((s) =>
        this.#create(`activation ${s.id}`, this.#maxRows(s.rows) * strideOf(s.cols) * 4, usage),
      );
      // Ids, and the records behind them.
      const idBytes = Math.max(16, limits.maxOutputs * (1 + RECORD_WORDS) * 4);
      const ids = this.#create('ids', idBytes, usage);
      const step = this.#create('step', this.#packer.bytes, USAGE.STORAGE | USAGE.COPY_DST);
      const lastToken = pool?.lastToken ?? this.#create('last tokens', bounds.slots * 4, usage);
      const ropes = new Map<RopeTable, GPUBuffer>();
      const norms = new Map<GPUBuffer, Map<GPUBuffer, GPUBuffer>>();
      this.#resources = {
        capabilities: host.capabilities,
        pool,
        maxContext: limits.maxContext,
        maxItems,
        maxOutputs: limits.maxOutputs,
        fusions,
        step,
        ids,
        lastToken,
        tensor: (tensor) => this.#bufferOf(tensor),
        rope: (table) => {
          let buffer = ropes.get(table);
          if (buffer === undefined) {
            buffer = this.#create(
              'rope',
              table.fine.byteLength + table.coarse.byteLength,
              USAGE.STORAGE | USAGE.COPY_DST,
            );
            host.device.queue.writeBuffer(buffer, 0, table.fine as Float32Array<ArrayBuffer>);
            host.device.queue.writeBuffer(
              buffer,
              table.fine.byteLength,
              table.coarse as Float32Array<ArrayBuffer>,
            );
            ropes.set(table, buffer);
          }
          return buffer;
        },
        headNorms: (q, k, headDim) => {
          const ofQ = norms.get(q) ?? new Map<GPUBuffer, GPUBuffer>();
          norms.set(q, ofQ);
          let buffer = ofQ.get(k);
          if (buffer === undefined) {
            buffer = this.#joined('head norms', [q, k], headDim * 4);
            ofQ.set(k, buffer);
          }
          return buffer;
        },
      };
      this.#packer.wideFrom = wideFrom(graph.nodes, this.#resources);
      this.#packer.tileWorkgroups = workgroupsOfTile(graph.nodes, this.#resources);
      const none = this.#create('no sampler state', 16, USAGE.STORAGE);
      this.#samplerBinding = { buffer: none, groups: new Map() };
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
      this.#ring = new ReadbackRing(allocator, host.faults, limits.inFlight, idBytes);
    } catch (error) {
      for (const buffer of this.#own) allocator.destroy(buffer);
      throw error;
    }
  }

  async prepare(tokens: number, outputs: number): Promise<void> {
    this.#alive();
    await this.#plan(tokens, outputs).prepare();
  }

  submit(inputs: StepInputs): Promise<Uint32Array> {
    this.#alive();
    const { device } = this.#host;
    const sampler = this.#sampler;
    const words = this.#packer.pack(inputs, sampler?.partsOf);
    const { facts } = this.#packer;
    if (facts.features !== 0) sampler?.check(inputs);
    const bytes = resultWords(facts.outputs, facts.features) * 4;
    const plan = this.#plan(facts.tokens, facts.outputs);
    plan.compile();
    const slot = this.#ring.take();
    try {
      device.queue.writeBuffer(this.#resources.step, 0, this.#packer.words, 0, words);
      const encoder = device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      plan.encode(pass, facts);
      pass.end();
      encoder.copyBufferToBuffer(this.#resources.ids, 0, slot.buffer, 0, Math.max(16, bytes));
      device.queue.submit([encoder.finish()]);
    } catch (error) {
      this.#ring.cancel(slot);
      throw error;
    }
    const read = this.#ring.read(slot, this.#samples ? bytes / 4 : 0);
    const drawing = sampler?.begin(inputs) ?? null;
    const result = drawing === null ? read : this.#retire(read, drawing);
    const settled = result.then(
      () => {},
      () => {},
    );
    this.#underWay.add(settled);
    void settled.then(() => this.#underWay.delete(settled));
    return result;
  }

  write(tensor: Tensor, data: Float32Array): void {
    this.#alive();
    const rows = data.length / tensor.cols;
    if (!Number.isInteger(rows) || rows > this.#maxRows(tensor.rows)) {
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
    this.#host.device.queue.writeBuffer(this.#bufferOf(tensor), 0, source);
  }

  async read(tensor: Tensor, rows: number): Promise<Float32Array> {
    this.#alive();
    if (!this.#graph.kept.includes(tensor)) {
      throw new KvantError('tensor-not-kept', `Tensor ${tensor.id} was not kept.`, {
        where: 'read',
        fix: 'Call ops.keep on it while recording.',
      });
    }
    const out = new Float32Array(rows * tensor.cols);
    if (rows === 0) return out;
    const { device, allocator, faults } = this.#host;
    const stride = strideOf(tensor.cols);
    const bytes = rows * stride * 4;
    const staging = allocator.create('read', bytes, USAGE.MAP_READ | USAGE.COPY_DST);
    try {
      const encoder = device.createCommandEncoder();
      encoder.copyBufferToBuffer(this.#bufferOf(tensor), 0, staging, 0, bytes);
      device.queue.submit([encoder.finish()]);
      try {
        await staging.mapAsync(MAP_MODE_READ, 0, bytes);
      } catch (error) {
        faults.check();
        throw error;
      }
      const data = new Float32Array(staging.getMappedRange(0, bytes));
      for (let r = 0; r < rows; r++) {
        out.set(data.subarray(r * stride, r * stride + tensor.cols), r * tensor.cols);
      }
      staging.unmap();
    } finally {
      allocator.destroy(staging);
    }
    faults.check();
    return out;
  }

  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    await Promise.all(this.#underWay);
    this.#free();
  }

  get sampler(): SamplerRows | null {
    return this.#sampler;
  }

  /** The launches of a bucket, for people. */
  describe(tokens: number, outputs: number): string[] {
    return this.#plan(tokens, outputs).labels();
  }

  #plan(tokens: number, outputs: number): Plan {
    const bucket: Bucket = {
      tokens: bucketOf(tokens, this.#limits.maxTokens),
      outputs: bucketOf(outputs, this.#limits.maxOutputs),
    };
    const key = bucket.tokens * (this.#limits.maxOutputs + 1) + bucket.outputs;
    let plan = this.#plans.get(key);
    if (plan === undefined) {
      const { pipelines, onPlan } = this.#host;
      const bound = this.#graph.nodes.flatMap((_, i) => this.#resolved(i, bucket));
      plan = new Plan(
        pipelines,
        bound,
        this.#scratch,
        (words) => this.#paramsBuffer(words),
        this.#groups,
        this.#samplerBinding,
      );
      this.#plans.set(key, plan);
      onPlan();
    }
    return plan;
  }

  /** After the result is there and before the caller has it: notes the tokens that state has taken in. */
  async #retire(result: Promise<Uint32Array>, drawing: Drawing): Promise<Uint32Array> {
    let ids: Uint32Array | null = null;
    try {
      ids = await result;
      return ids;
    } finally {
      this.#sampler?.retire(drawing, ids);
    }
  }

  /** Compiles what steps with features need and others do not. The kernels of the sampler are those of every plan. */
  async #prepareFeatures(): Promise<void> {
    this.#alive();
    const lazy = [...this.#bounds.values()].flatMap((bound) =>
      bound.flatMap(({ kernel }) => kernel.stages.filter((stage) => stage.lazy === true)),
    );
    await Promise.all(lazy.map((stage) => this.#host.pipelines.prepare(stage)));
  }

  #rebind(buffer: GPUBuffer): void {
    this.#samplerBinding.buffer = buffer;
    this.#samplerBinding.groups.clear();
    for (const plan of this.#plans.values()) plan.rebind();
  }

  /** Kernels of a node depend on the rows of its kind alone, so that plans share them. */
  #resolved(index: number, bucket: Bucket): Bound[] {
    const node = this.#graph.nodes[index]!;
    // Norms and glus vanish into linears where those take them.
    const follows = node.op === 'linear' || node.op === 'rms-norm' || node.op === 'glu';
    const kind: RowKind | null = follows ? node.x.rows : null;
    const key = kind === null ? `${index}` : `${index}:${bucket[kind]}`;
    let bound = this.#bounds.get(key);
    if (bound === undefined) {
      bound = resolveNode(node, bucket, this.#resources);
      this.#bounds.set(key, bound);
    }
    return bound;
  }

  /** Resolves every node for every bucket: faults show here, and no plan needs a buffer that is not made here. */
  #allocateScratch(): void {
    const sizes = new Map<string, number>();
    const tokens = buckets(this.#limits.maxTokens);
    const outputs = buckets(this.#limits.maxOutputs);
    for (let i = 0; i < Math.max(tokens.length, outputs.length); i++) {
      const bucket = {
        tokens: tokens[Math.min(i, tokens.length - 1)]!,
        outputs: outputs[Math.min(i, outputs.length - 1)]!,
      };
      for (const n of this.#graph.nodes.keys()) {
        for (const { kernel } of this.#resolved(n, bucket)) {
          for (const { params } of kernel.stages) if (params !== undefined) this.#paramsBuffer(params);
          for (const [name, bytes] of Object.entries(kernel.scratch ?? {})) {
            sizes.set(name, Math.max(sizes.get(name) ?? 0, bytes));
          }
        }
      }
    }
    for (const [name, bytes] of sizes) this.#scratch.set(name, this.#create(name, bytes, USAGE.STORAGE));
  }

  /** Layers of one shape share a buffer. */
  #paramsBuffer(words: Uint32Array): GPUBuffer {
    const key = words.join();
    let buffer = this.#params.get(key);
    if (buffer === undefined) {
      buffer = this.#create('params', words.byteLength, USAGE.UNIFORM | USAGE.COPY_DST);
      this.#host.device.queue.writeBuffer(buffer, 0, words as Uint32Array<ArrayBuffer>);
      this.#params.set(key, buffer);
    }
    return buffer;
  }

  #bufferOf(tensor: Tensor): GPUBuffer {
    const buffer = this.#storages[this.#storageOf[tensor.id] ?? -1];
    if (buffer !== undefined) return buffer;
    throw new KvantError('shape-mismatch', `Tensor ${tensor.id} is not of this graph.`, {
      where: 'tensor',
      fix: 'Use the tensors that were recorded with the graph.',
    });
  }

  /** The first `bytes` of each buffer, one after the other. */
  #joined(label: string, parts: readonly GPUBuffer[], bytes: number): GPUBuffer {
    const { device } = this.#host;
    const buffer = this.#create(label, parts.length * bytes, USAGE.STORAGE | USAGE.COPY_DST);
    const encoder = device.createCommandEncoder();
    parts.forEach((part, i) => {
      encoder.copyBufferToBuffer(part, 0, buffer, i * bytes, bytes);
    });
    device.queue.submit([encoder.finish()]);
    return buffer;
  }

  #create(label: string, bytes: number, usage: number): GPUBuffer {
    if (usage & USAGE.STORAGE && bytes > this.#host.capabilities.bindingBytes) {
      throw new KvantError(
        'device-out-of-memory',
        `${label} takes ${bytes} bytes, a binding of this GPU holds ${this.#host.capabilities.bindingBytes}.`,
        { kind: 'device', where: label, fix: 'Use fewer tokens in a step or fewer output rows.' },
      );
    }
    const buffer = this.#host.allocator.create(label, bytes, usage);
    this.#own.push(buffer);
    return buffer;
  }

  #maxRows(kind: RowKind): number {
    return kind === 'tokens' ? this.#limits.maxTokens : this.#limits.maxOutputs;
  }

  #alive(): void {
    this.#host.faults.check();
    if (!this.#disposed) return;
    throw new KvantError('disposed', 'The program has been disposed of.', { fix: 'Compile it again.' });
  }

  #free(): void {
    for (const buffer of this.#own) this.#host.allocator.destroy(buffer);
    this.#plans.clear();
    this.#sampler?.dispose();
    this.#ring.dispose();
    this.#groups.clear();
    this.#bounds.clear();
  }
}

/** The smallest power of two that holds n rows, or the limit. 0 for none. */
export function bucketOf(n: number, most: number): number {
  return n === 0 ? 0 : Math.min(most, 2 ** Math.ceil(Math.log2(n)));
}

/** Words of a step's result: an id for each output, and records if some row asks for them. */
function resultWords(outputs: number, features: number): number {
  return outputs * (features & (FEATURE.LOGPROBS | FEATURE.MIROSTAT) ? 1 + RECORD_WORDS : 1);
}

/** 1, 2, 4, … and the limit itself. */
export function buckets(most: number): number[] {
  const out: number[] = [];
  for (let n = 1; n < most; n *= 2) out.push(n);
  out.push(most);
  return out;
}

/** Items (split, row) there is scratch for, the same in every layer. */
function attentionItems(graph: Graph, limits: ProgramLimits, bindingBytes: number): number {
  let most = 0;
  for (const node of graph.nodes) {
    if (node.op === 'attend') most = Math.max(most, itemScratchBytes(node.shape));
  }
  if (most === 0) return 0;
  const wanted = limits.maxSequences * Math.ceil(limits.maxContext / ATTENTION_SPLIT);
  return Math.min(wanted, Math.floor(Math.min(PARTIALS_BYTES, bindingBytes) / most));
}
