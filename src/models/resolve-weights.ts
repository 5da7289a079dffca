/**
 * Which tensors of a checkpoint a layout is made of: all are there, of the right shape, and none is left that would change the result.
 * Headers alone are read.
 */

import { type MatrixSource, type StoredRows, type VectorSource, wholeRowBytes } from '../device/weights.js';
import { KvantError } from '../errors.js';
import type { AffineSpec } from '../weights/affine.js';
import { finiteMatrix, finiteVector } from '../weights/finite.js';
import { isQuantizable, quantizedSource } from '../weights/quantize.js';
import { alike } from './alike-formats.js';
import type { MatrixPart, MatrixSpec, ShapeOf, StackedRows, StoredShape, WeightLayout } from './layout.js';
import { paddedMatrix, paddedVector } from './padded-rows.js';
import { pickedRows } from './picked-rows.js';
import { transposedRows, transposedRuns } from './transposed-rows.js';

/** Where weights come from: a Checkpoint, or made up (shapes.ts). */
export interface WeightSource {
  has(name: string): boolean;
  /** `stack`: it is stored as `[stack, rows / stack, cols]`. */
  matrix(
    name: string,
    expected: { readonly rows: number; readonly cols: number; readonly stack?: number },
  ): MatrixSource;
  vector(name: string, shape: readonly number[]): VectorSource;
  /** What a header says of a tensor; undefined where there is none, or it is made up. */
  info(
    name: string,
  ): { readonly dtype: string; readonly shape: readonly number[]; readonly byteLength?: number } | undefined;
  /** What files of its kind call a tensor that is not there, where that is not its name. */
  called?(name: string): string;
  /** What the checkpoint itself would call a tensor that it does not have. */
  absent?(name: string): string;
  /** The tensors that nobody asked for. */
  unusedNames(): readonly string[];
}

/** How `quantize` stores float matrices. */
export type Quantization = AffineSpec;

/** A matrix with the sources of its parts. */
export interface ResolvedMatrix {
  readonly spec: MatrixSpec;
  readonly parts: readonly MatrixSource[];
  readonly biases: readonly (VectorSource | null)[];
}

export interface ResolvedWeights {
  readonly matrices: readonly ResolvedMatrix[];
  readonly vectors: readonly {
    readonly key: string;
    readonly group: number;
    readonly source: VectorSource;
    readonly host: boolean;
  }[];
  /** Tensors of something else than this model: they stay where they are. */
  readonly left: readonly string[];
}

/**
 * Finds every tensor of the layout, and checks that no other belongs to what they compute. Reads headers only.
 *
 * @throws KvantError `weights-tensor-missing`, `weights-tensor-shape`, `weights-tensor-dtype`, `weights-tensor-extra`, `weights-quantization-unsupported`, naming the tensor; with `quantize` also `weights-already-quantized` and `quantize-nothing`
 */
export function resolveWeights(
  source: WeightSource,
  layout: WeightLayout,
  quantize: Quantization | undefined,
): ResolvedWeights {
  const specs = layout.matrices.map((spec) => asNamed(source, spec));
  checkPresent(source, { ...layout, matrices: specs });
  const matrices = specs.map((spec) => {
    const parts = partSources(source, spec).map((matrix) =>
      quantize === undefined || spec.float === true ? finiteMatrix(matrix) : quantized(matrix, quantize),
    );
    const biases = partBiases(source, spec);
    return { spec, parts: spec.experts === undefined ? parts : alike(parts), biases };
  });
  const shapeOf: ShapeOf = (name) => source.info(name)?.shape;
  const vectors = layout.vectors.map(({ key, parts, group, make, host = false }) => ({
    key,
    group,
    host,
    source: made(
      parts.map(({ name, shape }) => finiteVector(source.vector(name, shape))),
      make && ((values) => make(values, shapeOf)),
    ),
  }));
  const left = source
    .unusedNames()
    .filter((name) => !isBuffer(source, name) && !layout.harmless.some((pattern) => pattern.test(name)));
  const extra = left.filter((name) => isApplied(name, layout));
  if (extra.length > 0) throw extraTensors(extra);
  if (quantize !== undefined && !matrices.some(({ parts }) => parts.some(isQuantized)))
    throw noneDivides(quantize);
  return { matrices, vectors, left };
}

/** A matrix by the names that the checkpoint has for its parts. */
function asNamed(source: WeightSource, spec: MatrixSpec): MatrixSpec {
  const { parts, otherParts: others } = spec;
  if (others === undefined || source.has(parts[0]!.name) || !source.has(others[0]!.name)) return spec;
  return { ...spec, parts: others };
}

/** The rows of each part, from a tensor of its own or a stack that several are in. */
function partSources(source: WeightSource, { parts, cols }: MatrixSpec): MatrixSource[] {
  const stacks = new Map<string, MatrixSource>();
  const turned = new Map<string, MatrixSource>();
  return parts.map((part) => {
    const within = source.has(part.name) ? undefined : stackOf(source, part, cols);
    if (within === undefined) return partSource(source, part, cols);
    const { name, rows, stack, first, every = 1, transposed = false } = within;
    const shape = transposed ? { rows: stack * cols, cols: rows / stack, stack } : { rows, cols, stack };
    const whole = stacks.get(name) ?? source.matrix(name, shape);
    stacks.set(name, whole);
    if (!transposed) return rowsOf(whole, { first, rows: part.rows, every });
    const each = rows / stack;
    const at = Math.floor(first / each);
    // Parts of one of the stack follow one another: it is turned once for them.
    const one = turned.get(`${name} ${at}`) ?? transposedRows(whole, at * cols, cols);
    turned.set(`${name} ${at}`, one);
    return rowsOf(one, { first: first % each, rows: part.rows, every });
  });
}

/** The biases of each part: of a tensor of its own, or where its rows are in a stack, of one with those of all. */
function partBiases(source: WeightSource, { parts, cols }: MatrixSpec): (VectorSource | null)[] {
  const stacks = new Map<string, VectorSource>();
  return parts.map((part) => {
    const within = source.has(part.name) ? undefined : stackOf(source, part, cols);
    if (within?.bias === undefined) return part.bias === null ? null : biasSource(source, part, part.bias);
    const { bias, stack, rows, first, every = 1 } = within;
    const all = stacks.get(bias) ?? held(finiteVector(source.vector(bias, [stack, rows / stack])));
    stacks.set(bias, all);
    const read = async (): Promise<Float32Array> => {
      const values = await all.read();
      return Float32Array.from({ length: part.rows }, (_, i) => values[first + i * every]!);
    };
    return { name: bias, length: part.rows, read };
  });
}

/** Read once. */
function held(vector: VectorSource): VectorSource {
  let values: Promise<Float32Array> | undefined;
  return {
    ...vector,
    read() {
      values ??= vector.read();
      return values;
    },
  };
}

/** The first that is there, of its shape; else the first that is there, whose shape is then found wrong. */
function stackOf(source: WeightSource, { within = [] }: MatrixPart, cols: number): StackedRows | undefined {
  const there = within.filter(({ name, sign = name }) => source.has(sign));
  if (there.length < 2) return there[0];
  const fits = ({ name, stack, rows, transposed = false }: StackedRows): boolean => {
    const sides = transposed ? [cols, rows / stack] : [rows / stack, cols];
    return source.info(name)?.shape.join() === [stack, ...sides].join();
  };
  return there.find(fits) ?? there[0];
}

interface Rows {
  readonly first: number;
  readonly rows: number;
  readonly every: number;
}

/** Some rows of a matrix as a matrix. */
function rowsOf(whole: MatrixSource, { first, rows, every }: Rows): MatrixSource {
  const { name, cols, format, stored } = whole;
  if (every > 1) {
    // From a multiple of `every` on, so that what is picked is a pattern of the rows.
    const all = { first: first - (first % every), rows: rows * every, every: 1 };
    return pickedRows(rowsOf(whole, all), { take: 1, of: every, from: first % every });
  }
  const readRows: MatrixSource['readRows'] = (start, end, room) =>
    whole.readRows(first + start, first + end, room);
  const run = stored?.order?.within ?? 1;
  if (stored === undefined || first % run !== 0 || rows % run !== 0)
    return { name, rows, cols, format, readRows };
  const readInto: StoredRows['readInto'] = (start, end, into, beside) =>
    stored.readInto(first + start, first + end, into, beside);
  return { name, rows, cols, format, readRows, stored: { ...stored, readInto } };
}

/** Masks, indices and empty tensors: nothing that was learnt. */
function isBuffer(source: WeightSource, name: string): boolean {
  const found = source.info(name);
  return found !== undefined && (found.shape.includes(0) || /^(BOOL|[IU]\d+)$/.test(found.dtype));
}

/** A part of what is computed, such as a bias that config.json does not speak of: without it the result is another. */
function isApplied(name: string, layout: WeightLayout): boolean {
  const layer = /^model\.layers\.(\d+)\./.exec(name)?.[1];
  // Groups: the embedding, each layer, the head.
  if (layer !== undefined) return Number(layer) < layout.groups - 2;
  return /^(lm_head|model\.((embedding_)?norm|final_layernorm|norm_f)|model\.embed_tokens)\./.test(name);
}

function partSource(source: WeightSource, part: MatrixPart, cols: number): MatrixSource {
  const { name, rows, stored, scaledBy, pick, transposed, own } = part;
  if (own !== undefined) {
    const { own: _, ...tensor } = part;
    return paddedMatrix(partSource(source, { ...tensor, rows: own.rows }, own.cols), rows, cols);
  }
  if (scaledBy !== undefined) {
    const factors = finiteVector(source.vector(scaledBy, [rows]));
    return matrixOf(scaled(source.vector(name, [rows, cols]), factors), rows, cols);
  }
  if (pick !== undefined && transposed !== undefined) {
    const stored = { rows: transposed * pick.of, cols: rows / transposed };
    return transposedRuns(source.matrix(name, stored), pick);
  }
  if (pick !== undefined)
    return pickedRows(source.matrix(name, { rows: (rows / pick.take) * pick.of, cols }), pick);
  if (stored === undefined) return source.matrix(name, { rows, cols });
  const shape = source.info(name)?.shape;
  const [first] = stored as readonly [StoredShape];
  const { shape: known, make } = stored.find((one) => one.shape.join() === shape?.join()) ?? first;
  return matrixOf(made([source.vector(name, known)], make), rows, cols);
}

function biasSource(
  source: WeightSource,
  { rows, scaledBy, own, ...part }: MatrixPart,
  name: string,
): VectorSource {
  if (own !== undefined) {
    const tensor = { ...part, rows: own.rows, ...(scaledBy === undefined ? {} : { scaledBy }) };
    return paddedVector(biasSource(source, tensor, name), rows);
  }
  const bias = finiteVector(source.vector(name, [rows]));
  return scaledBy === undefined ? bias : scaled(bias, finiteVector(source.vector(scaledBy, [rows])));
}

/** Rows, each multiplied by a factor of its own. */
function scaled({ name, length, read }: VectorSource, factors: VectorSource): VectorSource {
  return {
    name,
    length,
    async read() {
      const [values, by] = await Promise.all([read(), factors.read()]);
      const cols = length / factors.length;
      return values.map((value, i) => value * by[Math.floor(i / cols)]!);
    },
  };
}

/** Numbers as a matrix. They are held from the first row read to the last. */
function matrixOf(vector: VectorSource, rows: number, cols: number): MatrixSource {
  let values: Promise<Float32Array> | undefined;
  return {
    name: vector.name,
    rows,
    cols,
    format: { kind: 'float', dtype: 'f32' },
    async readRows(start, end) {
      values ??= vector.read();
      const { buffer, byteOffset } = await values;
      if (end === rows) values = undefined;
      return { data: new Uint8Array(buffer, byteOffset + start * cols * 4, (end - start) * cols * 4) };
    },
  };
}

/** One behind the other, and what is made of them. */
function made(
  sources: readonly VectorSource[],
  make: ((values: Float32Array) => Float32Array) | undefined,
): VectorSource {
  const [first] = sources as [VectorSource];
  if (sources.length === 1 && make === undefined) return first;
  const length = sources.reduce((sum, part) => sum + part.length, 0);
  return {
    name: first.name,
    length,
    async read() {
      const values = new Float32Array(length);
      let at = 0;
      for (const part of sources) {
        values.set(await part.read(), at);
        at += part.length;
      }
      return make === undefined ? values : make(values);
    },
  };
}

/** Bytes of a matrix as its source stores it: codes or floats, scales and biases of the groups. */
export function sourceBytes(source: MatrixSource): number {
  return source.rows * wholeRowBytes(source.cols, source.format);
}

function quantized(source: MatrixSource, spec: Quantization): MatrixSource {
  const { format } = source;
  if (format.kind !== 'float') {
    // What is asked for is what is there: made-up weights of a shape, or a checkpoint of the very format.
    if (format.kind === 'affine' && format.bits === spec.bits && format.groupSize === spec.groupSize)
      return source;
    throw alreadyQuantized(source.name, format.bits);
  }
  // A row that groups do not divide stays float: rare, small, and exact.
  return isQuantizable(source.cols, spec) ? quantizedSource(source, spec) : finiteMatrix(source);
}

const isQuantized = ({ format }: MatrixSource): boolean => format.kind !== 'float';

function alreadyQuantized(name: string, bits: number): KvantError {
  return new KvantError(
    'weights-already-quantized',
    `The checkpoint is quantised already: ${name} has ${bits} bits.`,
    {
      kind: 'invalid-request',
      where: 'quantize',
      fix: 'Load it without `quantize` (--quantize), or take the unquantised checkpoint.',
    },
  );
}

function noneDivides({ groupSize }: Quantization): KvantError {
  return new KvantError('quantize-nothing', `No matrix of the model has rows of groups of ${groupSize}.`, {
    kind: 'invalid-request',
    where: 'quantize',
    fix: 'Load it without `quantize` (--quantize).',
  });
}

const EXPERT = /\.experts\.\d+\./;

function checkPresent(source: WeightSource, layout: WeightLayout): void {
  const stacks = new Map<string, readonly string[]>();
  const names = layout.matrices.flatMap(({ parts, cols }) =>
    parts.flatMap((part) => {
      const { bias, scaledBy } = part;
      const within = source.has(part.name) ? undefined : stackOf(source, part, cols);
      if (EXPERT.test(part.name))
        stacks.set(
          part.name,
          (part.within ?? []).map(({ name }) => name),
        );
      const all = [within?.name ?? part.name, within?.bias ?? bias, scaledBy ?? null];
      return all.filter((name) => name !== null);
    }),
  );
  names.push(...layout.vectors.flatMap(({ parts }) => parts.map(({ name }) => name)));
  const missing = names.filter((name) => !source.has(name));
  if (missing.length === 0) return;
  const [first] = missing as [string];
  // A stack by the name that files of this kind have for it, else every name that is read.
  const called = (name: string): string => {
    for (const each of [name, ...(stacks.get(name) ?? [])]) {
      const own = source.called?.(each) ?? each;
      if (own !== each) return own;
    }
    return name;
  };
  const own = called(first) !== first;
  const absent = (name: string): string => source.absent?.(name) ?? name;
  const inStacks = (stacks.get(first) ?? []).map((name) => `, nor ${absent(name)}`).join('');
  throw new KvantError(
    'weights-tensor-missing',
    own
      ? `the file has no ${list([...new Set(missing.map(called))])} (of ${names.length} tensors that the model is made of)`
      : `the checkpoint has no ${list(missing.map(absent))} (of ${names.length} tensors that config.json calls for)${inStacks}`,
    {
      kind: 'model',
      where: own ? first : absent(first),
      fix:
        first === 'lm_head.weight'
          ? 'Set "tie_word_embeddings": true in config.json if the model has no head of its own.'
          : own
            ? 'Fetch the file again, or have it converted again with a current version of llama.cpp.'
            : 'Check that config.json belongs to these weights, and that every shard is there.',
    },
  );
}

function extraTensors(names: readonly string[]): KvantError {
  return new KvantError(
    'weights-tensor-extra',
    `the checkpoint holds tensors that the model has no use for: ${list(names)}`,
    {
      kind: 'model',
      where: names[0] as string,
      fix: 'Check that config.json belongs to these weights: a model with such tensors would be computed wrongly.',
    },
  );
}

/** The first few names, and how many more there are. */
function list(names: readonly string[]): string {
  const shown = names.slice(0, 3).join(', ');
  return names.length > 3 ? `${shown} and ${names.length - 3} more` : shown;
}
