/** What the float64 device keeps: matrices and vectors as their numbers, keys and values by position. */
import type { Matrix, MatrixOptions, Vector } from '../../src/device/device.js';
import type { KvPool, KvPoolSpec } from '../../src/device/kv.js';
import type { MatrixSource } from '../../src/device/weights.js';
import { sourceBytes } from '../../src/models/resolve-weights.js';
import { dequantiseRows } from '../../src/weights/dequantise.js';

/** Rows of a matrix that came from one source. */
interface Segment {
  readonly start: number;
  readonly rows: number;
  /** 0 for floats. */
  readonly groupSize: number;
}

export class ReferenceMatrix implements Matrix {
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

export class ReferenceVector implements Vector {
  readonly kind = 'vector';
  constructor(readonly values: Float32Array) {}
  get length(): number {
    return this.values.length;
  }
}

export class ReferencePool implements KvPool {
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

export async function loadMatrix(parts: readonly MatrixSource[], options: MatrixOptions): Promise<Matrix> {
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
export function expertOf({ rows, cols, values, bias, segments }: ReferenceMatrix, id: number, count: number) {
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
