/**
 * A device that computes every op in float64, token by token, straight from its definition. It is slow and has no
 * tricks, so that a model file can be judged apart from the kernels of a real device.
 *
 * With `int8` it rounds where the CPU's default path says that it does, and nowhere else: activations that meet
 * affine weights to int8, by row and weight group (`scale = max|x| / 127`, with the device's own f32 arithmetic: values on a grid, as a
 * quantised embedding has them, lie halfway between two codes), and K and V to the pool's format.
 */

import { checkAdapters } from '../../src/device/adapters.js';
import type {
  Device,
  Matrix,
  MatrixOptions,
  Program,
  ProgramLimits,
  Vector,
} from '../../src/device/device.js';
import { INVALID_TOKEN } from '../../src/device/device.js';
import { FEATURE_TOKEN } from '../../src/device/feature-slab.js';
import type { Graph, Node, NodeOf, Tensor } from '../../src/device/graph.js';
import type { KvPool, KvPoolSpec } from '../../src/device/kv.js';
import { visibleEndOf } from '../../src/device/look-ahead.js';
import { ROPE_FINE, type RopeTable } from '../../src/device/rope.js';
import { NoSamplerRows } from '../../src/device/sampling.js';
import { NO_SLOT, type StepInputs } from '../../src/device/step.js';
import { StepResult } from '../../src/device/step-result.js';
import type { MatrixSource, VectorSource } from '../../src/device/weights.js';
import { sourceBytes } from '../../src/models/resolve-weights.js';
import { dequantiseRows } from '../../src/weights/dequantise.js';
import { f16ToNumber, numberToF16 } from '../../src/weights/dtypes.js';
import * as reference from '../devices/reference.js';

/** Rows of a matrix that came from one source. */
interface Segment {
  readonly start: number;
  readonly rows: number;
  /** 0 for floats. */
  readonly groupSize: number;
}

class ReferenceMatrix implements Matrix {
  readonly kind = 'matrix';
  constructor(
    readonly rows: number,
    readonly cols: number,
    readonly values: Float32Array,
    readonly bias: Float32Array | null,
    readonly segments: readonly Segment[],
  ) {}
  get bytes(): number {
    return this.values.byteLength + (this.bias?.byteLength ?? 0);
  }
}

class ReferenceVector implements Vector {
  readonly kind = 'vector';
  constructor(readonly values: Float32Array) {}
  get length(): number {
    return this.values.length;
  }
}

class ReferencePool implements KvPool {
  readonly storage = 'reference';
  readonly bytes = 0;
  readonly tables: Uint32Array[];
  /** By layer: `[block · blockTokens + offset, kvHeads · headDim]`. */
  readonly keys: Float64Array[];
  readonly values: Float64Array[];

  constructor(readonly spec: KvPoolSpec) {
    this.tables = Array.from({ length: spec.slots }, () => new Uint32Array(spec.maxBlocksPerSlot));
    const rows = spec.blocks * spec.blockTokens;
    this.keys = spec.layers.map((layer) => new Float64Array(rows * layer.kvHeads * layer.headDim));
    this.values = spec.layers.map((layer) => new Float64Array(rows * layer.kvHeads * layer.headDim));
  }

  setBlocks(slot: number, first: number, blocks: Uint32Array): void {
    this.tables[slot]!.set(blocks, first);
  }

  async convert(): Promise<void> {
    throw new Error('the reference has no float-start blocks');
  }

  async copy(): Promise<void> {
    throw new Error('the reference does not copy blocks');
  }

  async read(): Promise<Uint8Array[]> {
    throw new Error('the reference does not read blocks');
  }

  async write(): Promise<void> {
    throw new Error('the reference does not write blocks');
  }

  async prepare(): Promise<void> {}

  row(slot: number, position: number): number {
    const { blockTokens } = this.spec;
    return this.tables[slot]![Math.floor(position / blockTokens)]! * blockTokens + (position % blockTokens);
  }

  dispose(): void {}
}

export function createReferenceDevice({ int8 = false } = {}): Device {
  return {
    info: {
      kind: 'cpu',
      name: 'float64',
      features: [],
      precision: 'reference',
      deterministic: true,
      memoryBytes: undefined,
      attentionSplit: 1 << 30,
      adapters: 0,
    },
    lost: new Promise(() => {}),
    place() {},
    loadMatrix,
    loadVector: async (source: VectorSource) => new ReferenceVector(await source.read()),
    createFeatureSlab: () => {
      throw new Error('the reference device has no features');
    },
    createKvPool: (spec) => new ReferencePool(spec),
    compile: async (graph: Graph, _limits: ProgramLimits, pool: KvPool | null) =>
      new ReferenceProgram(graph, pool as ReferencePool | null, int8),
    stats: () => ({ buffers: 0, bytes: 0, peakBytes: 0, samplerBytes: 0, plans: 0 }),
    async [Symbol.asyncDispose]() {},
  };
}

async function loadMatrix(parts: readonly MatrixSource[], options: MatrixOptions): Promise<Matrix> {
  const { cols } = parts[0] as MatrixSource;
  const rows = parts.reduce((sum, part) => sum + part.rows, 0);
  const values = new Float32Array(rows * cols);
  const bias = options.bias === undefined ? null : new Float32Array(rows);
  const segments: Segment[] = [];
  let at = 0;
  for (const [i, part] of parts.entries()) {
    const piece = part.format.kind === 'float' ? FLOAT_ROWS : 1;
    for (let row = 0; row < part.rows; row += piece) {
      const end = Math.min(row + piece, part.rows);
      await readRows(part, row, end, values.subarray((at + row) * cols, (at + end) * cols));
    }
    const source = options.bias?.[i];
    if (source != null) bias?.set(await source.read(), at);
    const groupSize = part.format.kind === 'affine' ? part.format.groupSize : 0;
    segments.push({ start: at, rows: part.rows, groupSize });
    at += part.rows;
  }
  options.onBytes?.(parts.reduce((sum, part) => sum + sourceBytes(part), 0));
  return new ReferenceMatrix(rows, cols, values, bias, segments);
}

/** Rows read at once. Of a quantised matrix it is one, as a row is unpacked at a time. */
const FLOAT_ROWS = 50;

async function readRows(source: MatrixSource, row: number, end: number, out: Float32Array): Promise<void> {
  dequantiseRows(await source.readRows(row, end), end - row, source.cols, source.format, out);
}

/** The rows of an expert of a stack, all of whose parts are alike. */
function expertOf({ rows, cols, values, bias, segments }: ReferenceMatrix, id: number, count: number) {
  const each = rows / count;
  const [from, to] = [id * each, (id + 1) * each];
  const { groupSize } = segments[0]!;
  return new ReferenceMatrix(
    each,
    cols,
    values.subarray(from * cols, to * cols),
    bias?.subarray(from, to) ?? null,
    [{ start: 0, rows: each, groupSize }],
  );
}

class ReferenceProgram implements Program {
  readonly sampler = new NoSamplerRows('reference');
  readonly #graph: Graph;
  readonly #pool: ReferencePool | null;
  readonly #int8: boolean;
  readonly #last = new Map<number, number>();
  #results = new Map<number, Float64Array>();
  /** By recurrent node and slot: all rows it was given. */
  readonly #histories = new Map<Node, Map<number, Float64Array[]>>();

  constructor(graph: Graph, pool: ReferencePool | null, int8: boolean) {
    this.#graph = graph;
    this.#pool = pool;
    this.#int8 = int8;
  }

  async prepare(): Promise<void> {}

  async submit(inputs: StepInputs): Promise<StepResult> {
    this.forward(inputs);
    return this.sample(inputs);
  }

  forward(inputs: StepInputs): void {
    checkAdapters(inputs, 0);
    this.#results = new Map();
    const slots: number[] = [];
    const positions: number[] = [];
    for (let s = 0; s < inputs.sequenceCount; s++) {
      for (let i = 0; i < inputs.seqLength[s]!; i++) {
        slots[inputs.seqStart[s]! + i] = inputs.seqSlot[s]!;
        positions[inputs.seqStart[s]! + i] = inputs.seqPosition[s]! + i;
      }
    }
    const ends = positions.map((position, t) => visibleEndOf(inputs, t, position));
    const rowsOf = (tensor: Tensor) => (tensor.rows === 'tokens' ? inputs.tokenCount : inputs.outputCount);
    const value = (tensor: Tensor): Float64Array => this.#results.get(tensor.id) as Float64Array;
    const set = (tensor: Tensor, data: Float64Array): void => {
      this.#results.set(tensor.id, data);
    };
    for (const node of this.#graph.nodes) {
      switch (node.op) {
        case 'embed': {
          const { cols, values } = node.table as ReferenceMatrix;
          const out = new Float64Array(inputs.tokenCount * cols);
          for (let t = 0; t < inputs.tokenCount; t++) {
            const token = inputs.tokens[t]!;
            const named = token >= FEATURE_TOKEN && node.featureRow != null ? node.featureRow : token;
            const id = token < 0 ? this.#last.get(-token - 1)! : named;
            for (let c = 0; c < cols; c++) out[t * cols + c] = values[id * cols + c]! * node.scale;
          }
          set(node.out, out);
          break;
        }
        case 'rms-norm': {
          const weight = (node.weight as ReferenceVector).values;
          set(node.out, reference.rmsNorm(value(node.x), weight, rowsOf(node.x), node.x.cols, node.eps));
          break;
        }
        case 'norm': {
          const values = (vector: Vector | null) => (vector as ReferenceVector | null)?.values ?? null;
          const parts = node.parts.map((part) => ({
            ...part,
            weight: values(part.weight),
            bias: values(part.bias),
          }));
          const { x, kind, eps } = node;
          set(node.out, reference.norm(value(x), rowsOf(x), x.cols, kind, parts, eps));
          break;
        }
        case 'act': {
          const { activation, parameters } = node;
          const numbers = [...((parameters as ReferenceVector | null)?.values ?? [])];
          set(
            node.out,
            value(node.x).map((v) =>
              activation === 'xielu' ? reference.xielu(v, numbers) : reference.activation(activation, v),
            ),
          );
          break;
        }
        case 'linear': {
          const residual = node.residual === null ? undefined : value(node.residual);
          set(
            node.out,
            this.#linear(node.weight as ReferenceMatrix, value(node.x), rowsOf(node.x), residual, node.exact),
          );
          break;
        }
        case 'head-linear': {
          const { x, weight, heads, from, step, out } = node;
          const each = weight.rows / heads;
          const rows = rowsOf(x);
          const made = new Float64Array(rows * out.cols);
          for (let r = 0; r < rows; r++)
            for (let h = 0; h < heads; h++) {
              const at = r * x.cols + from + h * step;
              const own = expertOf(weight as ReferenceMatrix, h, heads);
              const head = this.#linear(own, value(x).slice(at, at + weight.cols), 1, undefined, true);
              made.set(head, r * out.cols + h * each);
            }
          set(out, made);
          break;
        }
        case 'rope-append':
          set(node.out, this.#ropeAppend(node, value(node.qkv), slots, positions));
          break;
        case 'attend':
          set(
            node.out,
            this.#attend(
              node,
              value(node.q),
              slots,
              positions,
              node.ahead ? ends : positions.map((p) => p + 1),
            ),
          );
          break;
        case 'glu':
          set(node.out, reference.glu(value(node.x), rowsOf(node.x), node.out.cols, node.activation));
          break;
        case 'add': {
          const b = value(node.b);
          set(
            node.out,
            value(node.a).map((x, i) => x + b[i]!),
          );
          break;
        }
        case 'columns': {
          const { parts, out } = node;
          const rows = value(parts[0]!.x).length / parts[0]!.x.cols;
          const made = new Float64Array(rows * out.cols);
          for (const { x, from, to, cols, count, fromStep, toStep } of parts)
            for (let r = 0; r < rows; r++)
              for (let i = 0; i < count; i++) {
                const start = r * x.cols + from + i * fromStep;
                made.set(value(x).subarray(start, start + cols), r * out.cols + to + i * toStep);
              }
          set(out, made);
          break;
        }
        case 'clamp':
          set(node.out, reference.clamp(value(node.x), node.x.cols, (node.bounds as ReferenceVector).values));
          break;
        case 'scale':
          set(node.out, reference.scale(value(node.x), node.factor, node.softcap));
          break;
        case 'short-conv': {
          const { x, from, taps, gated, activation } = node;
          const cols = (gated ? 3 : 1) * node.out.cols;
          const weight = (node.weight as ReferenceVector).values;
          const bias = (node.bias as ReferenceVector | null)?.values ?? null;
          set(
            node.out,
            this.#recurrent(node, cols, columnsOf(value(x), x.cols, from, cols), inputs, (rows) =>
              reference.shortConv(rows, { taps, weight, bias, gated, activation }),
            ),
          );
          break;
        }
        case 'gated-delta': {
          const { qkv, gates, gatesFrom: from, heads } = node;
          const beside = { of: gates, from, cols: 2 * heads };
          const decay = (node.decay as ReferenceVector).values;
          set(
            node.out,
            this.#recurrentPair(node, qkv, beside, value, inputs, (rows, gated) =>
              reference.gatedDelta(rows, gated, { ...node, decay }),
            ),
          );
          break;
        }
        case 'selective-scan': {
          const { x, steps, stepsFrom: from, heads } = node;
          const beside = { of: steps, from, cols: heads };
          const decay = (node.decay as ReferenceVector).values;
          set(
            node.out,
            this.#recurrentPair(node, x, beside, value, inputs, (rows, stepped) =>
              reference.selectiveScan(rows, stepped, { ...node, decay }),
            ),
          );
          break;
        }
        case 'gate': {
          const weight = (node.norm?.weight as ReferenceVector | undefined)?.values;
          const norm = weight === undefined ? null : { weight, eps: node.norm!.eps };
          const { from, x: own, gate, gateFrom, out: result } = node;
          const by = columnsOf(value(gate), gate.cols, gateFrom, result.cols);
          const x = value(own);
          const width = weight?.length ?? result.cols;
          const out = new Float64Array(by.length);
          for (let at = 0; at < by.length; at += width) {
            const source = Math.floor(at / result.cols) * own.cols + from + (at % result.cols);
            const run = x.subarray(source, source + width);
            out.set(reference.gate(run, by.subarray(at, at + width), node.activation, norm), at);
          }
          set(node.out, out);
          break;
        }
        case 'route': {
          const { logits, spec } = node;
          const bias = (spec.bias as ReferenceVector | null)?.values ?? null;
          const expertScales = (spec.expertScales as ReferenceVector | null | undefined)?.values ?? null;
          const x = value(logits);
          const rows = Array.from({ length: rowsOf(logits) }, (_, r) => [
            ...x.subarray(r * logits.cols, (r + 1) * logits.cols),
          ]);
          const own = { ...spec, bias, expertScales };
          set(node.out, Float64Array.from(rows.flatMap((row) => reference.route(row, own))));
          break;
        }
        case 'experts': {
          const residual = node.residual === null ? undefined : value(node.residual);
          set(node.out, this.#experts(node, value(node.x), value(node.route), rowsOf(node.x), residual));
          break;
        }
        case 'select-outputs': {
          const x = value(node.x);
          const { cols } = node.x;
          const out = new Float64Array(inputs.outputCount * cols);
          for (let r = 0; r < inputs.outputCount; r++)
            out.set(x.subarray(inputs.outputs[r]! * cols, (inputs.outputs[r]! + 1) * cols), r * cols);
          set(node.out, out);
          break;
        }
        case 'sample':
          break;
        default:
          throw new Error(`the reference device has no ${node.op}`);
      }
    }
  }

  async computed(): Promise<void> {}

  async sample(inputs: StepInputs): Promise<StepResult> {
    const ids = new Uint32Array(inputs.outputCount);
    for (const node of this.#graph.nodes) {
      if (node.op !== 'sample') continue;
      const { id, cols } = node.logits;
      const logits = this.#results.get(id) as Float64Array;
      for (let r = 0; r < inputs.outputCount; r++) {
        if (inputs.outputSlot[r] === NO_SLOT) continue;
        const { token } = reference.sample(logits.subarray(r * cols, (r + 1) * cols), { temperature: 0 });
        ids[r] = token < 0 ? INVALID_TOKEN : token;
        this.#last.set(inputs.outputSlot[r]!, ids[r]!);
      }
    }
    return new StepResult(ids, ids.length);
  }

  write(): void {
    throw new Error('the reference device has no inputs');
  }

  async fill(): Promise<void> {
    this.write();
  }

  clear(): void {
    this.write();
  }

  store(): void {
    throw new Error('the reference device has no features');
  }

  async read(tensor: Tensor, rows: number): Promise<Float32Array> {
    return Float32Array.from((this.#results.get(tensor.id) as Float64Array).subarray(0, rows * tensor.cols));
  }

  async dispose(): Promise<void> {}

  #linear(
    w: ReferenceMatrix,
    x: Float64Array,
    rows: number,
    residual?: Float64Array,
    exact = false,
  ): Float64Array {
    const out = new Float64Array(rows * w.rows);
    for (const { start, rows: outs, groupSize } of w.segments) {
      const input = this.#int8 && groupSize > 0 && !exact ? roundToInt8(x, groupSize) : x;
      const weights = w.values.subarray(start * w.cols, (start + outs) * w.cols);
      const part = reference.linear(
        input,
        weights,
        rows,
        w.cols,
        outs,
        w.bias?.subarray(start, start + outs),
      );
      for (let r = 0; r < rows; r++) out.set(part.subarray(r * outs, (r + 1) * outs), r * w.rows + start);
    }
    if (residual !== undefined) for (let i = 0; i < out.length; i++) out[i]! += residual[i]!;
    return out;
  }

  #experts(
    node: NodeOf<'experts'>,
    x: Float64Array,
    route: Float64Array,
    rows: number,
    residual: Float64Array | undefined,
  ): Float64Array {
    const { count, activation } = node;
    const { cols } = node.x;
    const k = node.route.cols / 2;
    const out = residual?.slice() ?? new Float64Array(rows * node.out.cols);
    for (let r = 0; r < rows; r++) {
      for (let j = 0; j < k; j++) {
        const [id, weight] = [route[r * 2 * k + j]!, route[r * 2 * k + k + j]!];
        const gateUp = expertOf(node.gateUp as ReferenceMatrix, id, count);
        const inner = this.#linear(gateUp, x.slice(r * cols, (r + 1) * cols), 1);
        const half = node.down.cols;
        const hidden = inner
          .subarray(0, half)
          .map((gate, i) => reference.gatedUnit(activation, gate, inner[half + i]!));
        const y = this.#linear(expertOf(node.down as ReferenceMatrix, id, count), hidden, 1);
        y.forEach((v, i) => {
          out[r * y.length + i]! += weight * v;
        });
      }
    }
    return out;
  }

  #ropeAppend(
    node: NodeOf<'rope-append'>,
    qkv: Float64Array,
    slots: number[],
    positions: number[],
  ): Float64Array {
    const { heads, kvHeads, headDim } = node.shape;
    const pool = this.#pool as ReferencePool;
    const others = node.shape.valueDim === undefined ? 2 * kvHeads : kvHeads;
    const all = heads + (node.queriesOnly === true ? 0 : others);
    const width = all * headDim;
    const out = new Float64Array(slots.length * heads * headDim);
    for (let t = 0; t < slots.length; t++) {
      for (let h = 0; h < all; h++) {
        let head: Float64Array = qkv.slice(t * width + h * headDim, t * width + (h + 1) * headDim);
        const norm = h < heads ? node.norm?.q : node.norm?.k;
        if (h < heads + kvHeads) {
          const normed = (): void => {
            const { values } = norm as ReferenceVector;
            head = reference.rmsNorm(head, values, 1, headDim, node.norm?.eps as number);
          };
          const after = node.norm?.order === 'after';
          if (norm !== undefined && !after) normed();
          if (node.rope !== null) rotate(head, node.rope, positions[t]!);
          if (norm !== undefined && after) normed();
        }
        if (h < heads) {
          if (node.queryGrowth !== null) {
            const { beta, every } = node.queryGrowth;
            const growth = 1 + beta * Math.log(1 + Math.floor(positions[t]! / every));
            head = head.map((x) => x * growth);
          }
          out.set(head, (t * heads + h) * headDim);
        } else {
          const store = h < heads + kvHeads ? pool.keys : pool.values;
          const layer = pool.spec.layers[node.layer]!;
          const format = h < heads + kvHeads ? layer.key : layer.value;
          if (this.#int8 && format.kind === 'float' && format.dtype === 'f16')
            head = head.map((x) => f16ToNumber(numberToF16(x)));
          const row = pool.row(slots[t]!, positions[t]!);
          store[node.layer]!.set(head, (row * kvHeads + ((h - heads) % kvHeads)) * headDim);
        }
      }
    }
    return out;
  }

  /** A recurrent node over all that its sequences had so far: what it is asked for is what is new. */
  #recurrent(
    node: Node,
    cols: number,
    x: Float64Array,
    inputs: StepInputs,
    run: (rows: readonly Float64Array[]) => readonly Float64Array[],
  ): Float64Array {
    const histories = this.#histories.get(node) ?? new Map<number, Float64Array[]>();
    this.#histories.set(node, histories);
    const out: Float64Array[] = [];
    for (let s = 0; s < inputs.sequenceCount; s++) {
      const [slot, start] = [inputs.seqSlot[s]!, inputs.seqStart[s]!];
      const [length, position] = [inputs.seqLength[s]!, inputs.seqPosition[s]!];
      const rows = (histories.get(slot) ?? []).slice(0, position);
      for (let t = start; t < start + length; t++) rows.push(x.slice(t * cols, (t + 1) * cols));
      histories.set(slot, rows);
      out.push(...run(rows).slice(position));
    }
    return Float64Array.from(out.flatMap((row) => [...row]));
  }

  /** A recurrent node of two inputs, both side by side as one row of a history; of the second it takes some columns. */
  #recurrentPair(
    node: Node,
    a: Tensor,
    b: { readonly of: Tensor; readonly from: number; readonly cols: number },
    value: (tensor: Tensor) => Float64Array,
    inputs: StepInputs,
    run: (rows: readonly Float64Array[], beside: readonly Float64Array[]) => readonly Float64Array[],
  ): Float64Array {
    const cols = a.cols + b.cols;
    const both = new Float64Array(inputs.tokenCount * cols);
    for (let t = 0; t < inputs.tokenCount; t++) {
      both.set(value(a).subarray(t * a.cols, (t + 1) * a.cols), t * cols);
      const start = t * b.of.cols + b.from;
      both.set(value(b.of).subarray(start, start + b.cols), t * cols + a.cols);
    }
    return this.#recurrent(node, cols, both, inputs, (rows) =>
      run(
        rows,
        rows.map((row) => row.subarray(a.cols)),
      ),
    );
  }

  /** `ends`: behind the last position that each token sees. */
  #attend(
    node: NodeOf<'attend'>,
    q: Float64Array,
    slots: number[],
    positions: number[],
    ends: number[],
  ): Float64Array {
    const { heads, kvHeads, headDim, valueDim = headDim } = node.shape;
    const pool = this.#pool as ReferencePool;
    const latent = node.shape.valueDim !== undefined;
    const out = new Float64Array((q.length / headDim) * valueDim);
    for (let t = 0; t < slots.length; t++) {
      for (let h = 0; h < heads; h++) {
        const kvHead = Math.floor(h / (heads / kvHeads));
        const vectors = (store: Float64Array): Float64Array[] =>
          Array.from({ length: ends[t]! }, (_, p) => {
            const at = (pool.row(slots[t]!, p) * kvHeads + kvHead) * headDim;
            return store.subarray(at, at + headDim);
          });
        const at = (t * heads + h) * headDim;
        const keys = vectors(pool.keys[node.layer]!);
        const sinks = (node.sinks as ReferenceVector | null | undefined)?.values;
        const how = { ...node, position: positions[t]!, ...(sinks && { sink: sinks[h]! }) };
        const values = latent
          ? keys.map((key) => key.subarray(headDim - valueDim))
          : vectors(pool.values[node.layer]!);
        out.set(
          reference.attendOne(q.subarray(at, at + headDim), keys, values, how),
          (t * heads + h) * valueDim,
        );
      }
    }
    return out;
  }
}

function roundToInt8(x: Float64Array, groupSize: number): Float64Array {
  const out = new Float64Array(x.length);
  for (let from = 0; from < x.length; from += groupSize) {
    let top = 0;
    for (let i = from; i < from + groupSize; i++) top = Math.max(top, Math.abs(Math.fround(x[i]!)));
    const scale = Math.fround(top / 127);
    const inverse = Math.fround(127 / top);
    for (let i = from; i < from + groupSize && top > 0; i++)
      out[i] = toNearestEven(Math.fround(Math.fround(x[i]!) * inverse)) * scale;
  }
  return out;
}

function toNearestEven(value: number): number {
  const below = Math.floor(value);
  if (value - below === 0.5) return below % 2 === 0 ? below : below + 1;
  return Math.round(value);
}

/** As the tables say: coarse and fine angle added; the halves of what rotates are pairs, or neighbours are. */
function rotate(head: Float64Array, { dims, style, fine, coarse }: RopeTable, position: number): void {
  const half = dims / 2;
  for (let i = 0; i < half; i++) {
    const f = ((position % ROPE_FINE) * half + i) * 2;
    const c = (Math.floor(position / ROPE_FINE) * half + i) * 2;
    const cos = coarse[c]! * fine[f]! - coarse[c + 1]! * fine[f + 1]!;
    const sin = coarse[c + 1]! * fine[f]! + coarse[c]! * fine[f + 1]!;
    const [a, b] = style === 'half' ? [i, i + half] : [2 * i, 2 * i + 1];
    const x = head[a]!;
    const y = head[b]!;
    head[a] = x * cos - y * sin;
    head[b] = x * sin + y * cos;
  }
}

/** Some of the columns of rows. */
function columnsOf(x: Float64Array, cols: number, from: number, count: number): Float64Array {
  if (count === cols) return x;
  const rows = x.length / cols;
  const out = new Float64Array(rows * count);
  for (let r = 0; r < rows; r++) out.set(x.subarray(r * cols + from, r * cols + from + count), r * count);
  return out;
}
