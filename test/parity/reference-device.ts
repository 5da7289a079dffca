/**
 * A device that computes every op in float64, token by token, straight from its definition. It is slow and has no
 * tricks, so that a model file can be judged apart from the kernels of a real device.
 *
 * With `int8` it rounds where the CPU's default path says that it does, and nowhere else: activations that meet
 * affine weights to int8, by row and weight group (`scale = max|x| / 127`, with the device's own f32 arithmetic: values on a grid, as a
 * quantised embedding has them, lie halfway between two codes), and K and V to the pool's format.
 */

import { checkAdapters } from '../../src/device/adapters.js';
import type { Device, Program, ProgramLimits, Vector } from '../../src/device/device.js';
import { INVALID_TOKEN } from '../../src/device/device.js';
import { FEATURE_TOKEN } from '../../src/device/feature-slab.js';
import type { Graph, Tensor } from '../../src/device/graph.js';
import type { KvPool } from '../../src/device/kv.js';
import { visibleEndOf } from '../../src/device/look-ahead.js';
import { NoSamplerRows } from '../../src/device/sampling.js';
import { NO_SLOT, type StepInputs } from '../../src/device/step.js';
import { StepResult } from '../../src/device/step-result.js';
import type { VectorSource } from '../../src/device/weights.js';
import * as recurrent from '../devices/recurrent-reference.js';
import * as reference from '../devices/reference.js';
import { attend, ropeAppend } from './reference-attention.js';
import { experts, linear } from './reference-products.js';
import { Histories } from './reference-recurrent.js';
import {
  expertOf,
  loadMatrix,
  type ReferenceMatrix,
  ReferencePool,
  ReferenceVector,
} from './reference-storage.js';

export interface ReferenceOptions {
  readonly int8?: boolean;
  /** Is told of each row that is routed by its logits alone how far the last expert chosen is above the first left out. */
  readonly onRouted?: (margin: number) => void;
}

export function createReferenceDevice({ int8 = false, onRouted }: ReferenceOptions = {}): Device {
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
      new ReferenceProgram(graph, pool as ReferencePool | null, int8, onRouted),
    stats: () => ({ buffers: 0, bytes: 0, peakBytes: 0, samplerBytes: 0, plans: 0 }),
    async [Symbol.asyncDispose]() {},
  };
}

class ReferenceProgram implements Program {
  readonly sampler = new NoSamplerRows('reference');
  readonly #graph: Graph;
  readonly #pool: ReferencePool | null;
  readonly #int8: boolean;
  readonly #onRouted: ReferenceOptions['onRouted'];
  readonly #last = new Map<number, number>();
  #results = new Map<number, Float64Array>();
  readonly #histories = new Histories();

  constructor(
    graph: Graph,
    pool: ReferencePool | null,
    int8: boolean,
    onRouted: ReferenceOptions['onRouted'],
  ) {
    this.#graph = graph;
    this.#pool = pool;
    this.#int8 = int8;
    this.#onRouted = onRouted;
  }

  #cache(): ReferencePool {
    return this.#pool as ReferencePool;
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
            linear(
              this.#int8,
              node.weight as ReferenceMatrix,
              value(node.x),
              rowsOf(node.x),
              residual,
              node.exact,
            ),
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
              const head = linear(this.#int8, own, value(x).slice(at, at + weight.cols), 1, undefined, true);
              made.set(head, r * out.cols + h * each);
            }
          set(out, made);
          break;
        }
        case 'rope-append':
          set(node.out, ropeAppend(this.#cache(), this.#int8, node, value(node.qkv), slots, positions));
          break;
        case 'attend':
          set(
            node.out,
            attend(
              this.#cache(),
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
            this.#histories.run(node, cols, columnsOf(value(x), x.cols, from, cols), inputs, (rows) =>
              recurrent.shortConv(rows, { taps, weight, bias, gated, activation }),
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
            this.#histories.runPair(node, qkv, beside, value, inputs, (rows, gated) =>
              recurrent.gatedDelta(rows, gated, { ...node, decay }),
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
            this.#histories.runPair(node, x, beside, value, inputs, (rows, stepped) =>
              recurrent.selectiveScan(rows, stepped, { ...node, decay }),
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
            out.set(recurrent.gate(run, by.subarray(at, at + width), node.activation, norm), at);
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
          const chosen = node.out.cols / 2;
          for (const row of bias === null && chosen < logits.cols ? rows : []) {
            const [last = 0, next = 0] = row.toSorted((a, b) => b - a).slice(chosen - 1);
            this.#onRouted?.(last - next);
          }
          set(node.out, Float64Array.from(rows.flatMap((row) => reference.route(row, own))));
          break;
        }
        case 'experts': {
          const residual = node.residual === null ? undefined : value(node.residual);
          set(
            node.out,
            experts(this.#int8, node, value(node.x), value(node.route), rowsOf(node.x), residual),
          );
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
}

/** Some of the columns of rows. */
function columnsOf(x: Float64Array, cols: number, from: number, count: number): Float64Array {
  if (count === cols) return x;
  const rows = x.length / cols;
  const out = new Float64Array(rows * count);
  for (let r = 0; r < rows; r++) out.set(x.subarray(r * cols + from, r * cols + from + count), r * count);
  return out;
}
