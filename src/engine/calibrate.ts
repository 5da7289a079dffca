/** Measures what a model's keys and queries are like: one pass over some texts in f32 KV (kv/calibration.ts). */

import type { Device } from '../device/device.js';
import type { NodeOf } from '../device/graph.js';
import type { KvCaches, KvPool } from '../device/kv.js';
import { ROPE_FINE, type RopeTable } from '../device/rope.js';
import { StepInputs } from '../device/step.js';
import { KvantError } from '../errors.js';
import { type KvCalibration, type KvCalibrationLayer, kvCalibration } from '../kv/calibration.js';
import type { Model } from '../models/load.js';
import { CALIBRATION_TEXTS } from './calibration-texts.js';
import type { ModelText } from './model-text.js';

/** Tokens of a step: of every layer q, k and v are kept. */
const CHUNK = 128;
/** The first tokens of a text are unlike all others, and are left out of the means. */
const FIRST_TOKENS = 16;

/**
 * Errors: `kv-calibration-unsupported` of a model that keeps latents alone; `kv-calibration-short` where no text is longer than the tokens that are left out.
 *
 * @param caches of f32, with the blocks of the longest text in the tables of slot 0 (slot-caches.ts)
 * @param texts token ids, each text by itself
 * @example const calibration = await calibrateKv(model, device, caches, [text.encode(prose, true)]);
 */
export async function calibrateKv(
  model: Model,
  device: Device,
  caches: KvPool | KvCaches,
  texts: readonly Int32Array[],
  onTokens: (done: number, total: number) => void = () => {},
  signal?: AbortSignal,
): Promise<KvCalibration> {
  const total = texts.reduce((sum, ids) => sum + ids.length, 0);
  const context = Math.max(...texts.map((ids) => ids.length));
  if (!(context > FIRST_TOKENS))
    throw new KvantError('kv-calibration-short', `No text has more than ${FIRST_TOKENS} tokens.`, {
      kind: 'invalid-request',
      where: 'text',
      fix: 'Give a text of some hundred words.',
    });
  const { graph, appends: all } = model.buildGraph({ keepQkv: true, sample: false });
  // Of latents nothing can be taken off: their values are in them.
  const appends = all.filter(({ shape }) => shape.valueDim === undefined);
  if (appends.length === 0)
    throw new KvantError(
      'kv-calibration-unsupported',
      'The model keeps latents, and no keys that could be calibrated.',
      {
        kind: 'unsupported',
        fix: 'Leave the calibration out: quantised latents are stored as they are.',
      },
    );
  const limits = { maxTokens: CHUNK, maxOutputs: 1, maxSequences: 1, maxContext: context, inFlight: 1 };
  const program = await device.compile(graph, limits, caches);
  try {
    const layers = appends.map((node) => new LayerSums(node, (vector) => model.headNorm(vector)));
    const step = new StepInputs(CHUNK, 1, 1);
    let done = 0;
    for (const ids of texts) {
      for (let at = 0; at < ids.length; at += CHUNK) {
        signal?.throwIfAborted();
        const tokens = Math.min(CHUNK, ids.length - at);
        fill(step, ids.subarray(at, at + tokens), at);
        await program.submit(step);
        for (const [i, layer] of layers.entries())
          layer.take(await program.read(appends[i]!.qkv, tokens), at, tokens);
        done += tokens;
        onTokens(done, total);
      }
    }
    return kvCalibration(
      total,
      layers.map((layer) => layer.result()),
    );
  } finally {
    await program.dispose();
  }
}

/**
 * Token ids of what a calibration is made of, at most `most` in all: of `given`, or of the built-in texts. No text is longer than
 * `context`.
 */
export function calibrationTexts(
  text: ModelText,
  context: number,
  most: number,
  given: readonly string[] = CALIBRATION_TEXTS,
): readonly Int32Array[] {
  const texts: Int32Array[] = [];
  let left = most;
  for (const one of given) {
    const ids = text.encode(one, true).subarray(0, left);
    for (let at = 0; at < ids.length; at += context) texts.push(ids.subarray(at, at + context));
    left -= ids.length;
  }
  return texts;
}

function fill(step: StepInputs, ids: Int32Array, at: number): void {
  step.clear();
  step.tokens.set(ids);
  step.tokenCount = ids.length;
  step.sequenceCount = 1;
  step.seqSlot[0] = 0;
  step.seqStart[0] = 0;
  step.seqLength[0] = ids.length;
  step.seqPosition[0] = at;
}

type Append = NodeOf<'rope-append'>;
type Norm = { readonly weight: Float32Array; readonly eps: number; readonly after: boolean };

/** Sums over the tokens of a layer, in f64. */
class LayerSums {
  readonly #node: Append;
  readonly #norms: { readonly q: Norm; readonly k: Norm } | null;
  readonly #sum: Float64Array;
  readonly #squares: Float64Array;
  readonly #queries: Float64Array;
  readonly #head: Float64Array;
  readonly #first: Float64Array;
  #tokens = 0;
  #texts = 0;

  constructor(node: Append, headNorm: (vector: NonNullable<Append['norm']>['q']) => Float32Array) {
    const { norm, shape } = node;
    this.#node = node;
    const of = (weight: Float32Array): Norm => ({
      weight,
      eps: norm?.eps ?? 0,
      after: norm?.order === 'after',
    });
    this.#norms = norm === null ? null : { q: of(headNorm(norm.q)), k: of(headNorm(norm.k)) };
    const size = shape.kvHeads * shape.headDim;
    this.#sum = new Float64Array(size);
    this.#first = new Float64Array(size);
    this.#squares = new Float64Array(size);
    this.#queries = new Float64Array(size);
    this.#head = new Float64Array(shape.headDim);
  }

  /** `qkv` `[tokens, (heads + 2 · kvHeads) · headDim]`, from position `at` on. */
  take(qkv: Float32Array, at: number, tokens: number): void {
    const { heads, kvHeads, headDim } = this.#node.shape;
    const width = (heads + 2 * kvHeads) * headDim;
    const group = heads / kvHeads;
    for (let t = 0; t < tokens; t++) {
      const first = at + t === 0;
      if (first) this.#texts++;
      else if (at + t < FIRST_TOKENS) continue;
      const angle = this.#norms?.q.after === true ? at + t : null;
      for (let h = 0; h < heads + kvHeads; h++) {
        const isKey = h >= heads;
        const x = this.#head;
        for (let d = 0; d < headDim; d++) x[d] = qkv[t * width + h * headDim + d]!;
        this.#norm(x, isKey ? 'k' : 'q', angle);
        const to = (isKey ? h - heads : Math.floor(h / group)) * headDim;
        for (let d = 0; d < headDim; d++) {
          const value = x[d]!;
          if (first) {
            if (isKey) this.#first[to + d]! += value;
          } else if (isKey) {
            this.#sum[to + d]! += value;
            this.#squares[to + d]! += value * value;
          } else this.#queries[to + d]! += (value * value) / group;
        }
      }
      if (!first) this.#tokens++;
    }
  }

  /** The norm of a head; one that follows the rotation is made at its position and rotated back. */
  #norm(x: Float64Array, side: 'q' | 'k', position: number | null): void {
    if (this.#norms === null) return;
    const { weight, eps } = this.#norms[side];
    const { rope } = this.#node;
    if (position !== null && rope !== null) turn(x, rope, position, false);
    let squares = 0;
    for (const value of x) squares += value * value;
    const factor = 1 / Math.sqrt(squares / x.length + eps);
    for (let d = 0; d < x.length; d++) x[d]! *= factor * weight[d]!;
    if (position !== null && rope !== null) turn(x, rope, position, true);
  }

  result(): KvCalibrationLayer {
    const { kvHeads, headDim } = this.#node.shape;
    const n = Math.max(1, this.#tokens);
    const mean = Float32Array.from(this.#sum, (sum) => sum / n);
    const keys = Float32Array.from(this.#squares, (sum, d) => Math.max(0, sum / n - mean[d]! ** 2));
    const queries = Float32Array.from(this.#queries, (sum) => sum / n);
    for (const values of [keys, queries]) pairUp(values, headDim, this.#node.rope);
    const first = Float32Array.from(this.#first, (sum) => sum / this.#texts);
    return { kvHeads, headDim, mean, first, keys, queries };
  }
}

/** The two of a rope pair have one spread: their mean. */
function pairUp(values: Float32Array, headDim: number, rope: RopeTable | null): void {
  if (rope === null) return;
  const half = rope.dims / 2;
  for (let at = 0; at < values.length; at += headDim)
    for (let i = 0; i < half; i++) {
      const [a, b] = rope.style === 'half' ? [at + i, at + half + i] : [at + 2 * i, at + 2 * i + 1];
      const mean = (values[a]! + values[b]!) / 2;
      values[a] = mean;
      values[b] = mean;
    }
}

/** Rotates a head by its position, or back. */
function turn(
  x: Float64Array,
  { dims, style, fine, coarse }: RopeTable,
  position: number,
  back: boolean,
): void {
  const half = dims / 2;
  for (let i = 0; i < half; i++) {
    const f = ((position % ROPE_FINE) * half + i) * 2;
    const c = (Math.floor(position / ROPE_FINE) * half + i) * 2;
    let re = coarse[c]! * fine[f]! - coarse[c + 1]! * fine[f + 1]!;
    let im = coarse[c + 1]! * fine[f]! + coarse[c]! * fine[f + 1]!;
    if (back) {
      const squares = re * re + im * im;
      re /= squares;
      im /= -squares;
    }
    const [a, b] = style === 'half' ? [i, half + i] : [2 * i, 2 * i + 1];
    const [u, v] = [x[a]!, x[b]!];
    x[a] = u * re - v * im;
    x[b] = u * im + v * re;
  }
}
