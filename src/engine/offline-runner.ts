/**
 * A model on a device with no engine around it: programs that a measurement drives step by step. The weights are
 * loaded once, and any number of variants, each with a KV pool of its own formats, run on them side by side; so what
 * two variants differ in is the cache alone.
 */

import type { Device } from '../device/device.js';
import type { KeyCentre } from '../device/graph.js';
import { type KvPool, kvBlockBytes } from '../device/kv.js';
import type { KvOptions } from '../kv/options.js';
import type { KvPlan } from '../kv/policy.js';
import type { CacheLayer } from '../models/layout.js';
import { loadModel, type Model } from '../models/load.js';
import { chooseDevice } from './device-choice.js';
import { planCache } from './host-cache.js';
import { hostConfig } from './host-config.js';
import { openWeights, quantization } from './host-load.js';
import { DEFAULT_BLOCK_TOKENS } from './host-options.js';
import { loadKeyCentres, namedCalibration } from './key-centres.js';
import type { HostConfig, WeightOrigin } from './messages.js';
import { locateModel } from './model-location.js';
import { ModelText } from './model-text.js';
import type { EngineOptions } from './types.js';

/** A folder or hub name, or a named shape with random weights. */
export type WorkbenchModel =
  | { readonly model: string }
  | { readonly shape: string; readonly vocab?: number | undefined };

export interface CacheVariantRequest {
  readonly kv: KvOptions;
  /** Sequences, each with a state slot and blocks of its own. */
  readonly rows: number;
  /** Positions of each sequence. */
  readonly context: number;
}

/** A KV pool whose slots each own the blocks of one whole sequence, and how its layers are kept. */
export interface CacheVariant {
  readonly pool: KvPool;
  readonly plan: KvPlan;
}

export class OfflineRunner implements AsyncDisposable {
  readonly device: Device;
  readonly deviceReason: string;
  readonly model: Model;
  readonly text: ModelText;
  readonly #blockTokens: number;
  readonly #configOf: (kv: KvOptions) => HostConfig;
  readonly #pools: KvPool[] = [];
  #disposed = false;

  private constructor(
    device: Device,
    deviceReason: string,
    model: Model,
    text: ModelText,
    blockTokens: number,
    configOf: (kv: KvOptions) => HostConfig,
  ) {
    this.device = device;
    this.deviceReason = deviceReason;
    this.model = model;
    this.text = text;
    this.#blockTokens = blockTokens;
    this.#configOf = configOf;
  }

  /**
   * Loads the weights, and tells the device of the room that the variants will need together.
   * Errors: as of `Engine.load`.
   */
  static async open(
    what: WorkbenchModel,
    options: EngineOptions,
    variants: readonly CacheVariantRequest[],
  ): Promise<OfflineRunner> {
    const { onProgress, signal, blockTokens = DEFAULT_BLOCK_TOKENS } = options;
    let origin: WeightOrigin;
    let text = ModelText.none();
    if ('model' in what) {
      const path = await locateModel(what.model, options);
      text = await ModelText.load(path);
      origin = { kind: 'folder', path };
    } else {
      const { shape: name, vocab } = what;
      origin = { kind: 'shape', name, ...(vocab === undefined ? {} : { vocab }) };
    }
    const config = hostConfig(origin, options);
    await using weights = await openWeights(config);
    const { device, reason } = await chooseDevice(config);
    try {
      const configOf = (kv: KvOptions): HostConfig => hostConfig(origin, { ...options, ...kv });
      const quantize = quantization(config);
      const { cache } = weights.definition.facts;
      const bytes = variants.reduce((sum, variant) => {
        const { layers } = planVariant(cache, variant, configOf(variant.kv), device);
        return sum + variant.rows * blocksOf(variant, blockTokens) * kvBlockBytes(layers, blockTokens);
      }, 0);
      const f32 = planVariant(cache, { context: 1 }, { kv: { kvFormat: 'f32' }, blockTokens }, device).layers;
      const model = await loadModel(weights.source, weights.definition, device, {
        ...(quantize === undefined ? {} : { quantize }),
        // The variants' formats are their own. Placing wants tokens of one format: as many of f32 as fill that room.
        kvFormat: { kind: 'float', dtype: 'f32' },
        kvTokens: Math.ceil(bytes / kvBlockBytes(f32, 1)),
        onProgress: (done, total, item) =>
          onProgress?.({ phase: 'weights', done, total, unit: 'bytes', item }),
        ...(signal === undefined ? {} : { signal }),
      });
      return new OfflineRunner(device, reason, model, text, blockTokens, configOf);
    } catch (error) {
      await device[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Makes a pool. Errors: those of the formats and of the device's memory. */
  variant(request: CacheVariantRequest): CacheVariant {
    const { rows } = request;
    const plan = planVariant(this.model.layout.cache, request, this.#configOf(request.kv), this.device);
    const perSlot = blocksOf(request, this.#blockTokens);
    const head = plan.floatHead;
    const headBlocks = head === null ? 0 : Math.min(perSlot, head.tokens / this.#blockTokens);
    const own = perSlot - headBlocks;
    const pool = this.device.createKvPool({
      layers: plan.layers,
      blocks: Math.max(1, rows * own),
      ...(head === null
        ? {}
        : { floatStart: { blocks: rows * headBlocks, dtype: head.dtype, head: head.tokens } }),
      blockTokens: this.#blockTokens,
      slots: rows,
      maxBlocksPerSlot: perSlot,
    });
    for (let slot = 0; slot < rows; slot++) {
      const blocks = Uint32Array.from({ length: perSlot }, (_, i) =>
        i < headBlocks ? pool.spec.blocks + slot * headBlocks + i : slot * own + i - headBlocks,
      );
      pool.setBlocks(slot, 0, blocks);
    }
    this.#pools.push(pool);
    return { pool, plan };
  }

  /** What the keys of a variant are freed of, by layer, if there is a calibration. Errors: those of its file. */
  async centres(plan: KvPlan): Promise<readonly (KeyCentre | null)[]> {
    const config = this.#configOf({});
    const named = await namedCalibration(config, plan.layers, this.device);
    const calibration =
      named === 'auto'
        ? await (await import('./auto-calibration.js')).autoCalibration(
            config,
            this.model,
            this.device,
            () => {},
          )
        : named;
    if (calibration === null) return [];
    return loadKeyCentres(this.model, this.device, plan, calibration);
  }

  /** Programs made on it are to be disposed of before. Once more does nothing. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    for (const pool of this.#pools.splice(0)) pool.dispose();
    await this.device[Symbol.asyncDispose]();
  }
}

function planVariant(
  cache: readonly CacheLayer[],
  { context }: Pick<CacheVariantRequest, 'context'>,
  { kv, blockTokens }: Pick<HostConfig, 'kv' | 'blockTokens'>,
  device: Device,
): KvPlan {
  return planCache({ kv, blockTokens, maxContext: context }, cache, device.info, context);
}

function blocksOf({ context }: CacheVariantRequest, blockTokens: number): number {
  return Math.ceil(context / blockTokens);
}
