/** Measures what formats of the KV cache cost: the model's distributions over a text, against those of float KV. */

import { kvUnusable } from '../device/kv.js';
import { KvantError } from '../errors.js';
import type { KvCalibration } from '../kv/calibration.js';
import { parseKvFormat } from '../kv/formats.js';
import type { KvLayerLosses, KvLosses } from '../kv/losses.js';
import type { KvOptions } from '../kv/options.js';
import type { KvLayerShape } from '../kv/policy.js';
import { loadKeyCentres } from './key-centres.js';
import { BaselineRow, Distances } from './kv-compare.js';
import { Scorer, type ScorerHost } from './scorer.js';

/** Formats that a split of bytes picks from, by width: where TurboQuant has the width it loses less (docs/kv-quality.md). */
export const LOSS_FORMATS = ['turbo2', 'turbo3', 'turbo4', 'affine5', 'affine6', 'turbo8'] as const;
/** The one that every side of every layer is measured with; the others by all layers of a side at once. */
const PROBE = 'turbo4';
/** Tokens of a text that is measured with: a pass for each side of each layer. */
const TOKENS = 512;
/** Positions that are compared: every so many from there on. */
const FROM = 64;
const EVERY = 4;
/** Of what a meter compares several caches with, at once. */
const MOST_BASELINE_BYTES = 512 * 2 ** 20;

/** Distances of caches from float KV over the end of some texts. */
export class LossMeter {
  readonly #host: ScorerHost;
  readonly #texts: readonly Int32Array[];
  readonly #context: number;
  #baseline: BaselineRow[] | null = null;

  /**
   * Errors: `kv-calibration-short`, where no text has so many tokens that one could be compared.
   *
   * @param texts token ids, each text by itself
   */
  constructor(
    host: Omit<ScorerHost, 'centres'>,
    calibration: KvCalibration,
    texts: readonly Int32Array[],
    most = TOKENS,
  ) {
    const { device, model } = host;
    const variant: ScorerHost['variant'] = (request) => host.variant(request);
    this.#host = {
      device,
      model,
      variant,
      centres: (plan) => loadKeyCentres(model, device, plan, calibration),
    };
    const room = Math.floor(MOST_BASELINE_BYTES / (8 * host.model.facts.vocabSize)) * EVERY + FROM;
    this.#texts = lastTokens(texts, Math.min(most, room));
    this.#context = Math.max(0, ...this.#texts.map((ids) => ids.length));
    if (this.positions > 0) return;
    throw new KvantError('kv-calibration-short', `No text has more than ${FROM} tokens.`, {
      kind: 'invalid-request',
      where: 'text',
      fix: 'Give a text of some hundred words.',
    });
  }

  get positions(): number {
    return this.#texts.reduce((sum, ids) => sum + rowsOf(ids.length), 0);
  }

  /** Tokens of one cache's pass. */
  get tokens(): number {
    return this.#texts.reduce((sum, ids) => sum + ids.length, 0);
  }

  /** Mean KL from float KV, in nats. Errors: those of the formats and of the device's memory. */
  async loss(kv: KvOptions, signal?: AbortSignal): Promise<number> {
    this.#baseline ??= await this.#measure({ kvFormat: 'f32' }, null, signal);
    const distances = new Distances();
    await this.#measure(kv, distances, signal);
    const { klMean } = distances.summary();
    if (Number.isFinite(klMean)) return klMean;
    throw new KvantError(
      'kv-calibration-invalid',
      `With ${JSON.stringify(kv)} the model's logits are not finite.`,
      {
        kind: 'model',
        fix: 'The checkpoint may be damaged, or need a wider type: try the text with `kvant generate` first.',
      },
    );
  }

  /** Compares a cache with the baseline, or becomes it. */
  async #measure(kv: KvOptions, distances: Distances | null, signal?: AbortSignal): Promise<BaselineRow[]> {
    await using scorer = await Scorer.open(this.#host, kv, this.#context);
    const rows: BaselineRow[] = [];
    let at = 0;
    for (const ids of this.#texts) {
      const length = ids.length - 1;
      for (let from = 0; from < length; from += scorer.chunk) {
        signal?.throwIfAborted();
        const to = Math.min(length, from + scorer.chunk);
        const logits = await scorer.step(ids, from, to, FROM, EVERY);
        const { vocabSize } = this.#host.model.facts;
        let row = 0;
        for (let position = FROM; position < to; position += EVERY) {
          if (position < from) continue;
          const next = ids[position + 1]!;
          if (distances === null) {
            const own = new BaselineRow(vocabSize);
            own.take(logits, row++, next);
            rows.push(own);
          } else distances.add(this.#baseline![at++]!, logits, row++, next, '');
        }
      }
    }
    return rows;
  }
}

/**
 * Each side of each layer that attends and sees all, quantised alone. One format is measured so; how others compare with it is
 * measured with all layers of a side at once, for their errors have the same shape.
 *
 * @param onPasses told after each pass over the text
 */
export async function measureKvLosses(
  meter: LossMeter,
  layers: readonly KvLayerShape[],
  float: string,
  onPasses: (done: number, total: number) => void = () => {},
  signal?: AbortSignal,
): Promise<KvLosses> {
  const attending = layers.flatMap(({ state }, layer) => (state === undefined ? [layer] : []));
  const probe = parseKvFormat(PROBE);
  const coded = attending.filter(
    (layer) => layers[layer]!.window === null && kvUnusable(probe, layers[layer]!) === undefined,
  );
  const total = 2 * coded.length + 2 * LOSS_FORMATS.length;
  let done = 0;
  const pass = async (of: readonly number[], side: 'key' | 'value', format: string): Promise<number> => {
    const name = side === 'key' ? `${format}/${float}` : `${float}/${format}`;
    const kvLayerFormats = layers.map((_, layer) => (of.includes(layer) ? name : float));
    const loss = await meter.loss({ kvLayerFormats, kvFloatHead: 'auto' }, signal);
    onPasses(++done, total);
    return loss;
  };
  const all = { key: {} as Record<string, number>, value: {} as Record<string, number> };
  const single = { key: new Map<number, number>(), value: new Map<number, number>() };
  if (coded.length > 0)
    for (const side of ['key', 'value'] as const) {
      for (const format of LOSS_FORMATS) all[side][format] = await pass(coded, side, format);
      for (const layer of coded) single[side].set(layer, await pass([layer], side, PROBE));
    }
  const sideLosses = (side: 'key' | 'value', layer: number): Record<string, number> => {
    const own = single[side].get(layer);
    if (own === undefined) return {};
    // Shares of what all layers lose together, so that the sum over them is what was measured.
    const sum = [...single[side].values()].reduce((a, b) => a + b, 0);
    const share = sum > 0 ? own / sum : 1 / coded.length;
    return Object.fromEntries(LOSS_FORMATS.map((format) => [format, share * all[side][format]!]));
  };
  const rows = attending.map(
    (layer): KvLayerLosses => ({ key: sideLosses('key', layer), value: sideLosses('value', layer) }),
  );
  return { positions: meter.positions, layers: rows };
}

/** What positions of a text of so many tokens are compared: the last token foretells nothing. */
function rowsOf(length: number): number {
  return Math.max(0, Math.ceil((length - 1 - FROM) / EVERY));
}

/** The end of the texts, where they are least like what a calibration has seen of them. */
function lastTokens(texts: readonly Int32Array[], most: number): readonly Int32Array[] {
  const taken: Int32Array[] = [];
  let left = most;
  for (const ids of [...texts].reverse()) {
    const some = ids.subarray(Math.max(0, ids.length - left));
    if (rowsOf(some.length) > 0) taken.push(some);
    left -= some.length;
    if (left <= FROM) break;
  }
  return taken;
}
