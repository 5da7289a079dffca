/**
 * The device contract.
 *
 * A device holds weights, KV pools and state slabs, and runs Programs. That is all it does: it knows nothing of
 * models, requests, prompts or HTTP, and what runs on it is decided by arrays of numbers.
 *
 *     const program = await device.compile(graph, limits, caches); // once
 *     pool.setBlocks(slot, 0, blocks); // where the slot's keys and values go
 *     const { ids } = await program.submit(inputs); // every step: the token drawn for each output
 *
 * **Record once, replay every step.** A model calls `Ops` (ops.ts) once. Each call appends a node to a Graph and
 * answers with a symbolic Tensor; nothing is computed. `device.compile(graph, limits)` turns the graph into a
 * Program: it fuses what the device can fuse, chooses a kernel variant by capability and shape, and lets the
 * lifetime planner (lifetimes.ts) decide which tensors share memory. Inside, a Program keeps one Plan for each
 * bucket of (tokens, outputs): a list of launches with every buffer, bind group and constant resolved. A step
 * replays a Plan. It creates nothing on the device.
 *
 * **What changes between steps lives in device arrays.** Token ids, positions, sequence extents, sampling
 * parameters are written by `submit` from a StepInputs (step.ts); block tables by `pool.setBlocks` when they
 * change; what the sampler knows of a row (counts, matches, masks) by `program.sampler`, between steps (sampling.ts). The device
 * writes the sampled token into the state slot of its sequence, and the next step may read its input from there. So the host can
 * submit step n + 1 before it has seen the ids of step n.
 *
 * **Cache index and rotary position are two things.** Block tables, masks and windows go by a token's index in its sequence. Rotation
 * goes by it too, unless the rotation was recorded with axes (RopeTable.axes): then each pair turns by one of three positions of the token, which
 * `StepInputs.rotary` gives for sequences where they are not the index. Programs without axes have the kernels they had, and are refused
 * other positions.
 *
 * **Tokens have three sources**: an id, what a slot drew last, or a row of the feature slab (feature-slab.ts) that the embedding was recorded
 * with. A tower, which encodes pictures, is a program of its own: it keeps what it makes of a picture, `store` copies that to the slab, and
 * the text's steps name the rows.
 *
 * **Outputs** are tokens whose logits are wanted. Each may draw into a slot, several of a sequence too where its row has no state, and each may
 * have its hidden row brought to the host (`Ops.hidden`).
 *
 * **A step without a draw may be run in slices**: some of its launches, then steps of other programs, then more of them. A tower's step is,
 * for a large picture would keep rows that decode waiting.
 *
 * **A step may be run in two halves**, so that masks can be made while the device computes. `forward` runs everything but the
 * draw. The host then reads the ids of the step before, sets the masks that depend on them, and `sample` draws from the logits
 * that are there. `sample` may leave outputs out whose mask is not there yet (NO_SLOT in `outputSlot`): their slots keep
 * their last token and their state, and the caller may compute the same position again in a later step. Together the halves
 * launch what the whole step launches, and give the same tokens.
 *
 * **Experts may stay in host memory** (MatrixOptions.host), computed there by a device beside this one: a step then runs up to them, what
 * they read of its rows comes to the host, and what they make goes back. Steps and moves of blocks keep their order all the same.
 *
 * **Steps run in order.** `submit` returns at once. At most `limits.inFlight` steps may be under way; the caller
 * keeps count. A step's ids arrive through its promise, in order. Whatever a submitted step names (blocks, state
 * slots) must be left alone until that promise settles.
 *
 * **Rows are independent.** A token's result depends on its own sequence and nothing else: not on the other
 * rows, nor on how many there are, nor on how the prompt was cut. On the CPU this holds bitwise; on WebGPU
 * bitwise with `deterministic`, else up to the order of sums and to what kernels for so many rows round x to.
 *
 * **Faults.** Allocation that fails throws a KvantError `device-out-of-memory` where it was asked for. A device
 * that is lost rejects the steps under way and every later call with `device-lost`, and resolves `lost`. A row
 * whose logits hold no finite maximum gets the id `INVALID_TOKEN`: its neighbours are not hurt.
 */

import type { KvantError } from '../errors.js';
import type { FeaturePlace, FeatureSlab, FeatureSlabSpec } from './feature-slab.js';
import type { Graph, Tensor } from './graph.js';
import type { KvCaches, KvPool, KvPoolSpec } from './kv.js';
import type { SamplerRows } from './sampling.js';
import type { StepInputs } from './step.js';
import type { StepResult } from './step-result.js';
import type { Matrix, MatrixFormat, MatrixSource, Vector, VectorSource } from './weights.js';

export type { Matrix, Vector } from './weights.js';

export const DEVICE_KINDS = ['cpu', 'webgpu'] as const;
export type DeviceKind = (typeof DEVICE_KINDS)[number];

/** The id of a row that could not be sampled (NaN, or nothing finite). */
export const INVALID_TOKEN = 0xffff_ffff;

/**
 * `default`: the device's fastest arithmetic that meets the stated error bounds (int8 activations on the CPU,
 * f16 or int8 operands on a GPU). `reference`: f32 activations everywhere, f32 sums.
 */
export const PRECISIONS = ['default', 'reference'] as const;
export type Precision = (typeof PRECISIONS)[number];

/**
 * How kernels are chosen where there are several for the same work. `off`: by rule; nothing is measured or read. `safe`:
 * by measurement, among those that change no bit of a result. `full`: also among those that add up in another
 * order or round on the way.
 */
export const AUTOTUNE_MODES = ['off', 'safe', 'full'] as const;
export type AutotuneMode = (typeof AUTOTUNE_MODES)[number];

export interface MatrixOptions {
  /** `[rows]`, added to the product. One for each part, in order; null where a part has none. */
  readonly bias?: readonly (VectorSource | null)[];
  /** What the matrix is used for. `both` is a tied embedding: gathered by row and multiplied with. */
  readonly use: 'linear' | 'embedding' | 'both';
  /** The placement group, an index into what `place` was given. 0 if omitted. */
  readonly group?: number;
  /** Rows that are kept together, from the first on: those of an expert. */
  readonly unit?: number;
  /** Kept in host memory, where `experts` reads it (DeviceInfo.hostExperts). Default false: on the device. */
  readonly host?: boolean;
  /** Called as bytes of the source are taken in. */
  readonly onBytes?: (bytes: number) => void;
}

/** What one group (usually a layer with its KV) will need, stated before anything is loaded. */
export interface PlacementGroup {
  readonly matrices: readonly {
    readonly rows: number;
    readonly cols: number;
    readonly format: MatrixFormat;
    /** As of MatrixOptions. */
    readonly host?: boolean;
  }[];
  readonly kvBytes: number;
}

export interface DeviceStats {
  /** Live device buffers (WebGPU) or allocations (CPU). */
  readonly buffers: number;
  /** Bytes of those. */
  readonly bytes: number;
  /** Most bytes that there have been at once since the device was made. */
  readonly peakBytes: number;
  /** Bytes of those that hold the sampler's row state: 0 while no request needs any. */
  readonly samplerBytes: number;
  /** Plans made so far. Grows between steps, never within one. */
  readonly plans: number;
  /** Bytes in host memory, of experts kept there and what computes them. Absent: none are kept there. */
  readonly hostBytes?: number;
}

export interface DeviceInfo {
  readonly kind: DeviceKind;
  /** e.g. `NVIDIA H200 (Vulkan)` or `2 threads, relaxed SIMD`. */
  readonly name: string;
  /** Feature names as the device reports them: `f16`, `subgroups-32`, `subgroup-matrix`, `relaxed-simd`, … */
  readonly features: readonly string[];
  readonly precision: Precision;
  readonly deterministic: boolean;
  /** Bytes that weights, KV and scratch may take together, as far as it is known. */
  readonly memoryBytes: number | undefined;
  /** Sequence length at whose multiples attention splits its sums. */
  readonly attentionSplit: number;
  /**
   * The centres of keys that it takes (KeyCentre, graph.ts): those that turn as well, or those that are the same at all positions.
   * Absent: none.
   */
  readonly keyCentres?: 'turning' | 'flat';
  /** Adapters that it holds, by which steps may name them (StepInputs.seqAdapter). No device loads any yet: 0. */
  readonly adapters: number;
  /** KV pools may have a float head (KvFloatStartSpec of kv.ts). Default: no. */
  readonly floatHeads?: boolean;
  /** Tokens of the longest float tail that layers may have (KvPlace of kv.ts). Default: 0, there are none. */
  readonly floatTails?: number;
  /** Stacks of experts may be kept in host memory and are computed there (MatrixOptions.host). Default: no. */
  readonly hostExperts?: boolean;
}

export interface ProgramLimits {
  /** Most tokens (prompt chunk tokens and decode rows together) in one step. */
  readonly maxTokens: number;
  /** Most rows whose logits are wanted in one step. */
  readonly maxOutputs: number;
  /**
   * Products add up in one order for any number of rows, on matrices too: a row has the same bits alone and beside others. Few rows take longer for it.
   * Default: no.
   */
  readonly oneOrder?: boolean;
  /** Most sequences in one step. */
  readonly maxSequences: number;
  /** Longest context of a sequence, in tokens. */
  readonly maxContext: number;
  /** Steps that may be under way at once. */
  readonly inFlight: number;
}

/**
 * A part of a step. Its launches are cut into `of` parts of about equal number; these are the parts `[from, to)`. A graph of `of` nodes
 * that are all of one op and one shape is cut into its nodes.
 */
export interface StepSlice {
  readonly from: number;
  readonly to: number;
  readonly of: number;
}

export interface Program {
  /** The sampler's row state. Null if the graph does not sample. */
  readonly sampler: SamplerRows | null;
  /** Makes the Plan for steps of up to so many tokens and outputs, if it is not there yet. For use at load. */
  prepare(tokens: number, outputs: number): Promise<void>;
  /**
   * Runs one step; resolves when it has retired, with what it drew for each output. `inputs` may be reused as soon as
   * this returns.
   *
   * `slice`: a part of the step alone, so that steps of other programs may come between the parts. They follow one another, each when the
   * one before has retired, with the same inputs, and leave what the whole step leaves, to the last bit. Only of graphs that do not sample.
   */
  submit(inputs: StepInputs, slice?: StepSlice): Promise<StepResult>;
  /**
   * Runs the first half of a step: all but the draw. The next step of this program is its `sample`. Until then masks may be
   * set of slots that it will draw for, if no earlier step still draws for them. The two count as one step under way.
   * `inputs` may be reused as soon as this returns. Throws where `submit` would fail at once.
   */
  forward(inputs: StepInputs): void;
  /**
   * Resolves when the device has run the `forward` whose `sample` is still to come, or never will: why not is said by
   * `sample`. What comes too late for this has kept the device waiting.
   */
  computed(): Promise<void>;
  /**
   * Runs the second half of the step that `forward` began: the draw, for all outputs whose slot is not NO_SLOT. `inputs` are those
   * of `forward`, but for `outputSlot` and `sampling`. Resolves as `submit` does.
   */
  sample(inputs: StepInputs): Promise<StepResult>;
  /** Fills a tensor made by `ops.input`, `[rows, cols]` row-major. Only between steps. */
  write(tensor: Tensor, data: Float32Array): void;
  /**
   * The same of its first `rows`, without a copy on the way: `make` is given their room, `[rows, cols]`, which holds anything, and sets all of it
   * before it ends; it may take turns with other work. Resolves when the next step may be submitted. One at a time.
   */
  fill(tensor: Tensor, rows: number, make: (room: Float32Array) => void | Promise<void>): Promise<void>;
  /** Makes its first `rows` zeros. Only between steps. */
  clear(tensor: Tensor, rows: number): void;
  /** Reads the first rows of a tensor that was `ops.keep`-ed, as f32. Only after the step retired. */
  read(tensor: Tensor, rows: number): Promise<Float32Array>;
  /**
   * Copies rows of a kept tensor to a feature slab. Only after the step that made them has retired, and not
   * into rows that a step under way names; steps submitted later find them there.
   *
   * Errors: `shape-mismatch`, `tensor-not-kept`.
   */
  store(tensor: Tensor, slab: FeatureSlab, place: FeaturePlace): void;
  /** Frees what the program alone uses. Steps under way are finished first. */
  dispose(): Promise<void>;
}

export interface Device extends AsyncDisposable {
  readonly info: DeviceInfo;
  /** Resolves, never rejects, when the device is lost; stays pending otherwise. */
  readonly lost: Promise<KvantError>;
  /** States what is to come, so that a device with several memories can place it. Once, before loading. */
  place(groups: readonly PlacementGroup[]): void;
  /** Loads one matrix, or several stacked by rows: `[Σ rows, cols]`. Equal `cols`; formats may differ. */
  loadMatrix(parts: readonly MatrixSource[], options: MatrixOptions): Promise<Matrix>;
  loadVector(source: VectorSource, group?: number): Promise<Vector>;
  createKvPool(spec: KvPoolSpec): KvPool;
  /** Errors: `device-out-of-memory`; on WebGPU the next `compile` may throw it. */
  createFeatureSlab(spec: FeatureSlabSpec): FeatureSlab;
  /** `caches`: where the layers' K and V are; a pool alone holds all of them. */
  compile(graph: Graph, limits: ProgramLimits, caches: KvPool | KvCaches | null): Promise<Program>;
  stats(): DeviceStats;
}
