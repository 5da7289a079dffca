/**
 * Experts in host memory, computed there. The step is cut before their nodes: what such a node reads of the rows that the step has goes
 * to the host, whose device computes them from its own stacks, and what they make goes back to where the launches behind the cut
 * find it. The host's program has the same nodes, of one layer behind the other; a cut runs one of them, a slice of its step.
 */

import type { Device, Program, ProgramLimits } from '../device.js';
import type { Graph, Node, NodeOf, Tensor } from '../graph.js';
import { Ops } from '../ops.js';
import { StepInputs } from '../step.js';
import type { Allocator } from './allocator.js';
import { MAP_MODE_READ, USAGE } from './constants.js';
import { waitIsOver } from './dawn-ticks.js';
import { deviceLost, type Faults } from './faults.js';
import { GpuMatrix } from './matrix.js';
import { strideOf } from './resources.js';

/** Rows that the host computes at once: inputs of so many are held for each layer. */
const MOST_ROWS = 256;

export interface ExpertsHost {
  readonly device: GPUDevice;
  readonly allocator: Allocator;
  readonly faults: Faults;
  /** What computes them; null: nothing does. */
  readonly expertsDevice: Device | null;
}

/** A node as the host's program has it. */
interface HostNode {
  readonly node: NodeOf<'experts'>;
  /** What it reads: on the GPU, and in the host's graph. */
  readonly inputs: readonly { readonly from: Tensor; readonly to: Tensor }[];
  readonly out: Tensor;
}

export class HostExperts {
  readonly #host: ExpertsHost;
  readonly #nodes: readonly HostNode[];
  readonly #bufferOf: (tensor: Tensor) => GPUBuffer;
  readonly #program: Program;
  readonly #step: StepInputs;
  readonly #most: number;
  /** Rows on their way to the host: one step after the other passes through. */
  readonly #staging: GPUBuffer;

  /** Null for a graph without such nodes. */
  static async create(
    host: ExpertsHost,
    graph: Graph,
    limits: ProgramLimits,
    bufferOf: (tensor: Tensor) => GPUBuffer,
  ): Promise<HostExperts | null> {
    const { expertsDevice } = host;
    const own = [...hostNodes(graph)];
    if (expertsDevice === null || own.length === 0) return null;
    const ops = new Ops();
    const nodes = own.map((node): HostNode => {
      const { x, route, residual, count, gateUp, down, activation } = node;
      const inputs = [x, route, ...(residual === null ? [] : [residual])].map((from) => ({
        from,
        to: ops.input('tokens', from.cols),
      }));
      const [rows, chosen, sum = null] = inputs.map(({ to }) => to) as [Tensor, Tensor, Tensor?];
      const out = ops.experts(rows, chosen, { count, gateUp, down, activation, residual: sum });
      return { node, inputs, out: ops.keep(out) };
    });
    const most = Math.min(limits.maxTokens, MOST_ROWS);
    const program = await expertsDevice.compile(
      ops.finish(),
      { maxTokens: most, maxOutputs: 1, maxSequences: 1, maxContext: most, inFlight: 1 },
      null,
    );
    return new HostExperts(host, nodes, bufferOf, program, most, limits.maxTokens);
  }

  private constructor(
    host: ExpertsHost,
    nodes: readonly HostNode[],
    bufferOf: (tensor: Tensor) => GPUBuffer,
    program: Program,
    most: number,
    maxRows: number,
  ) {
    this.#host = host;
    this.#nodes = nodes;
    this.#bufferOf = bufferOf;
    this.#program = program;
    this.#step = new StepInputs(most, 1, 1);
    this.#most = most;
    const rowBytes = nodes.map(({ inputs }) => inputs.reduce((sum, { from }) => sum + bytesOf(from), 0));
    this.#staging = host.allocator.create(
      'rows for the host',
      Math.max(...rowBytes) * maxRows,
      USAGE.MAP_READ | USAGE.COPY_DST,
    );
  }

  /** Cuts of a step: one before each node. */
  get cuts(): number {
    return this.#nodes.length;
  }

  /** The kind of rows that the node at a cut takes. */
  rowsAt(cut: number): 'tokens' | 'outputs' {
    return this.#nodes[cut]!.node.x.rows;
  }

  /** Behind the launches before a cut: copies what its node reads of so many rows. */
  bring(encoder: GPUCommandEncoder, cut: number, rows: number): void {
    let at = 0;
    for (const { from } of this.#nodes[cut]!.inputs) {
      const bytes = bytesOf(from) * rows;
      encoder.copyBufferToBuffer(this.#bufferOf(from), 0, this.#staging, at, bytes);
      at += bytes;
    }
  }

  /**
   * Computes the node at a cut when its rows have come, and writes what it makes to the device: some rows after others, so that what is
   * held for them on the host is no more than the program's own.
   */
  async compute(cut: number, rows: number): Promise<void> {
    const { inputs, out, node } = this.#nodes[cut]!;
    const { device, faults } = this.#host;
    const target = this.#bufferOf(node.out);
    const given = await this.#map(inputs, rows);
    let mapped = true;
    try {
      faults.check();
      for (let first = 0; first < rows; first += this.#most) {
        const count = Math.min(this.#most, rows - first);
        let from = 0;
        for (const { to } of inputs) {
          const stride = strideOf(to.cols);
          const own = given.subarray(from + first * stride, from + (first + count) * stride);
          await this.#program.fill(to, count, (room) => copyRows(own, stride, room, to.cols, to.cols));
          from += rows * stride;
        }
        if (first + count === rows) {
          this.#staging.unmap();
          mapped = false;
        }
        await this.#program.submit(this.#rows(count), { from: cut, to: cut + 1, of: this.#nodes.length });
        const made = await this.#program.read(out, count);
        faults.check();
        const stride = strideOf(out.cols);
        const padded = stride === out.cols ? made : new Float32Array(count * stride);
        if (padded !== made) copyRows(made, out.cols, padded, stride, out.cols);
        device.queue.writeBuffer(target, first * stride * 4, padded as Float32Array<ArrayBuffer>);
      }
    } finally {
      if (mapped) this.#staging.unmap();
    }
  }

  async dispose(): Promise<void> {
    this.#host.allocator.destroy(this.#staging);
    await this.#program.dispose();
  }

  /** The rows of each input, one input behind the other, as they are on the device. */
  async #map(inputs: HostNode['inputs'], rows: number): Promise<Float32Array> {
    const staging = this.#staging;
    const bytes = inputs.reduce((sum, { from }) => sum + bytesOf(from), 0) * rows;
    try {
      await staging.mapAsync(MAP_MODE_READ, 0, bytes);
    } catch (error) {
      throw this.#host.faults.lost ?? deviceLost('map failed', String(error));
    }
    waitIsOver();
    return new Float32Array(staging.getMappedRange(0, bytes));
  }

  /** A step of so many rows: one sequence, from nothing. */
  #rows(count: number): StepInputs {
    const step = this.#step;
    step.tokenCount = count;
    step.sequenceCount = 1;
    step.seqLength[0] = count;
    return step;
  }
}

/** The nodes of experts whose stacks are not on the GPU. */
function hostNodes(graph: Graph): ReadonlySet<NodeOf<'experts'>> {
  return new Set(graph.nodes.filter(isHostNode));
}

/** Whether a node is left to the host: its stacks are not on the GPU. */
export function isHostNode(node: Node): node is NodeOf<'experts'> {
  return node.op === 'experts' && !(node.gateUp instanceof GpuMatrix);
}

/** Of a row, as the device has it. */
function bytesOf({ cols }: Tensor): number {
  return strideOf(cols) * 4;
}

/** The first `cols` numbers of every row. */
function copyRows(
  from: Float32Array,
  stride: number,
  to: Float32Array,
  toStride: number,
  cols: number,
): void {
  if (stride === toStride) {
    to.set(from);
    return;
  }
  for (let a = 0, b = 0; a < from.length; a += stride, b += toStride) to.set(from.subarray(a, a + cols), b);
}
