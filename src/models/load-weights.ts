/** From sources of weights to matrices and vectors on a device. */

import type { Device, Matrix, Vector } from '../device/device.js';
import { KvantError } from '../errors.js';
import { type MatrixSpec, matrixRows, type Weights } from './layout.js';
import { type ResolvedMatrix, type ResolvedWeights, sourceBytes } from './resolve-weights.js';

export interface LoadProgress {
  /** Called as weights arrive: bytes so far, bytes in all, and the tensor at hand. */
  readonly onProgress?: (loaded: number, total: number, tensor: string) => void;
  /** Checked between matrices. */
  readonly signal?: AbortSignal;
}

/** Keys of the norms of heads: small, and calibration asks for them. */
const HEAD_NORM = /[qk]-norm$/;

/** While two are read another is repacked. */
const MATRICES_AT_ONCE = 3;

/**
 * Starts the work on each in order, as many at once. When one fails no other is started, those under way are waited for,
 * and the first failure is thrown.
 */
async function inOrder<T>(
  items: readonly T[],
  atOnce: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const errors: unknown[] = [];
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < items.length && errors.length === 0) {
      try {
        await work(items[next++]!);
      } catch (error) {
        errors.push(error);
      }
    }
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
  if (errors.length > 0) throw errors[0];
}

/** Puts all weights on the device, in the order of the layout. `hosted`: the keys of those that stay in host memory beside it. */
export async function loadWeights(
  device: Device,
  resolved: ResolvedWeights,
  hosted: ReadonlySet<string>,
  { onProgress, signal }: LoadProgress,
): Promise<{
  weights: Pick<Weights, 'matrix' | 'vector' | 'number' | 'numbers'>;
  headNorms: ReadonlyMap<Vector, Float32Array>;
  bytes: number;
  hostBytes: number;
}> {
  const matrices = new Map<string, Matrix>();
  const vectors = new Map<string, Vector>();
  const headNorms = new Map<Vector, Float32Array>();
  const total = resolved.matrices.reduce(
    (sum, { parts }) => sum + parts.reduce((part, source) => part + sourceBytes(source), 0),
    0,
  );
  let loaded = 0;
  let bytes = 0;
  let hostBytes = 0;
  const load = async ({ spec, parts, biases }: ResolvedMatrix): Promise<void> => {
    signal?.throwIfAborted();
    let left = parts.reduce((sum, source) => sum + sourceBytes(source), 0);
    const tensor = (spec.parts[0] as { name: string }).name;
    const read = (taken: number): void => {
      // A device may count what it repacked; the end of a matrix is known.
      const more = Math.min(taken, left);
      left -= more;
      loaded += more;
      onProgress?.(loaded, total, tensor);
    };
    const host = hosted.has(spec.key);
    const stack = spec.experts ?? spec.heads;
    const matrix = await device.loadMatrix(parts, {
      use: spec.use,
      group: spec.group,
      ...(host ? { host } : {}),
      ...(stack === undefined ? {} : { unit: matrixRows(spec) / stack.count }),
      ...(biases.some((bias) => bias !== null) ? { bias: biases } : {}),
      onBytes: read,
    });
    read(left);
    checkLoaded(spec, matrix);
    matrices.set(spec.key, matrix);
    if (host) hostBytes += matrix.bytes;
    else bytes += matrix.bytes;
  };
  await inOrder(resolved.matrices, MATRICES_AT_ONCE, load);
  const numbers = new Map<string, Float32Array>();
  for (const { key, group, source, host } of resolved.vectors) {
    if (host) {
      numbers.set(key, Float32Array.from(await source.read()));
      continue;
    }
    let values: Float32Array | null = null;
    const read = async (): Promise<Float32Array> => {
      values = await source.read();
      return values;
    };
    const vector = await device.loadVector({ ...source, read }, group);
    vectors.set(key, vector);
    if (HEAD_NORM.test(key) && values !== null) headNorms.set(vector, Float32Array.from(values));
    bytes += source.length * 4;
  }
  const weights = {
    matrix: (key: string) => get(matrices, key),
    vector: (key: string) => get(vectors, key),
    number: (key: string) => get(numbers, key)[0]!,
    numbers: (key: string) => get(numbers, key),
  };
  return { weights, headNorms, bytes, hostBytes };
}

function checkLoaded(spec: MatrixSpec, matrix: Matrix): void {
  if (matrix.rows === matrixRows(spec) && matrix.cols === spec.cols) return;
  throw new KvantError('internal', `the device made ${matrix.rows} × ${matrix.cols} of ${spec.key}`);
}

/** What the layout has to have. */
export function get<T>(map: ReadonlyMap<string, T>, key: string): T {
  const value = map.get(key);
  if (value === undefined)
    throw new KvantError('internal', `the layout has no weight ${JSON.stringify(key)}`);
  return value;
}
