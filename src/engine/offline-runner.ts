/**
 * A model on a device with no engine around it: programs that a measurement drives step by step. The weights are
 * loaded once, and any number of variants, each with caches of its own formats, run on them side by side; so what
 * two variants differ in is the cache alone.
 */

import type { Device } from '../device/device.js';
import type { KeyCentre } from '../device/graph.js';
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
import { locatePlace } from './model-location.js';
import { ModelText } from './model-text.js';
import { type SlotCaches, type SlotSizes, slotCacheBytes, slotCaches } from './slot-caches.js';
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

/** Caches whose slots each own the blocks of one whole sequence, and how their layers are kept. */
export interface CacheVariant {
  readonly caches: SlotCaches;
  readonly plan: KvPlan;
}

export class OfflineRunner implements AsyncDisposable {
  readonly device: Device;
  readonly deviceReason: string;
  readonly model: Model;
  readonly text: ModelText;
  readonly #blockTokens: number;
  readonly #configOf: (kv: KvOptions) => HostConfig;
  readonly #caches: SlotCaches[] = [];
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
      const place = await locatePlace(what.model, options);
      text = await ModelText.load(place);
      origin = { kind: 'folder', ...place };
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
        return sum + slotCacheBytes(layers, sizesOf(variant, blockTokens));
      }, 0);
      const f32 = planVariant(cache, { context: 1 }, { kv: { kvFormat: 'f32' }, blockTokens }, device).layers;
      const model = await loadModel(weights.source, weights.definition, device, {
        ...(quantize === undefined ? {} : { quantize }),
        // The variants' formats are their own. Placing wants tokens of one format: as many of f32 as fill that room.
        kvFormat: { kind: 'float', dtype: 'f32' },
        kvTokens: Math.ceil(bytes / slotCacheBytes(f32, { slots: 1, context: 1, blockTokens: 1 })),
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

  /** Makes caches. Errors: those of the formats and of the device's memory. */
  variant(request: CacheVariantRequest): CacheVariant {
    const plan = planVariant(this.model.layout.cache, request, this.#configOf(request.kv), this.device);
    const sizes = sizesOf(request, this.#blockTokens);
    const caches = slotCaches(this.device, plan.layers, sizes, plan);
    this.#caches.push(caches);
    return { caches, plan };
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
    for (const caches of this.#caches.splice(0)) caches.dispose();
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

function sizesOf({ rows, context }: CacheVariantRequest, blockTokens: number): SlotSizes {
  return { slots: rows, context, blockTokens };
}
