/**
 * Memory of the host that a GPU copies large inputs from: what fills it writes where the copy begins, and its pages are there from the
 * second time on.
 */

import type { Graph, Tensor } from '../graph.js';
import { MAP_MODE_WRITE, USAGE } from './constants.js';
import type { Faults } from './faults.js';
import type { ProgramBuffers } from './program-buffers.js';
import { strideOf } from './resources.js';

interface StagingHost {
  readonly device: GPUDevice;
  readonly faults: Faults;
}

export class InputStaging {
  readonly #host: StagingHost;
  readonly #buffers: ProgramBuffers;
  /** Null where a graph has no inputs. It is the program's, and freed with its other buffers. */
  readonly #room: GPUBuffer | null;

  constructor(host: StagingHost, buffers: ProgramBuffers, { nodes }: Graph) {
    this.#host = host;
    this.#buffers = buffers;
    const sizes = nodes.flatMap((node) =>
      node.op === 'input' ? [strideOf(node.out.cols) * 4 * buffers.maxRows(node.out.rows)] : [],
    );
    const bytes = Math.max(0, ...sizes);
    this.#room =
      bytes === 0 ? null : buffers.create('input staging', bytes, USAGE.MAP_WRITE | USAGE.COPY_SRC);
  }

  /** Fills the first rows of an input. `make` is given their room, which holds anything. */
  async fill(
    tensor: Tensor,
    rows: number,
    make: (room: Float32Array) => void | Promise<void>,
  ): Promise<void> {
    const to = this.#buffers.input(tensor, rows);
    const { cols } = tensor;
    const from = this.#room;
    if (strideOf(cols) !== cols || from === null) {
      const room = new Float32Array(rows * cols);
      await make(room);
      this.#buffers.write(tensor, room);
      return;
    }
    if (rows === 0) return;
    const { device, faults } = this.#host;
    const bytes = rows * cols * 4;
    try {
      await from.mapAsync(MAP_MODE_WRITE, 0, bytes);
    } catch (error) {
      faults.check();
      throw error;
    }
    try {
      await make(new Float32Array(from.getMappedRange(0, bytes)));
    } finally {
      from.unmap();
    }
    const encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(from, 0, to, 0, bytes);
    device.queue.submit([encoder.finish()]);
    faults.check();
  }

  clear(tensor: Tensor, rows: number): void {
    const buffer = this.#buffers.input(tensor, rows);
    if (rows === 0) return;
    const { device } = this.#host;
    const encoder = device.createCommandEncoder();
    encoder.clearBuffer(buffer, 0, rows * strideOf(tensor.cols) * 4);
    device.queue.submit([encoder.finish()]);
  }
}
