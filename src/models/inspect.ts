/** What `kvant inspect` tells of a model, as data: derived from its config and the headers of its weights. */

import type { DeviceInfo } from '../device/device.js';
import { kvBlockBytes } from '../device/kv.js';
import { lut4Group, type MatrixFormat, type MatrixSource } from '../device/weights.js';
import { type KvOptions, readKvOptions } from '../kv/options.js';
import { groupLayers, type KvLayerInfo, planKvLayers } from '../kv/policy.js';
import { floatStartBlockBytes } from '../kv/sizing.js';
import type { AffineSpec } from '../weights/affine.js';
import type { ModelDefinition } from './family.js';
import { hostMatrices } from './host-experts.js';
import { type ExpertStack, MATRIX_KINDS, type MatrixKind, parameterCount } from './layout.js';
import { resolveWeights, sourceBytes, type WeightSource } from './resolve-weights.js';

export interface WeightSummary {
  readonly kind: MatrixKind | 'norms and biases';
  readonly parameters: number;
  /** Bytes as stored, or as they will be after `quantize`. */
  readonly bytes: number;
  /** The formats that occur, most bytes first: `bf16`, `4-bit (group 64)`; of a type of a GGUF file also what it was, and bits a weight. */
  readonly formats: readonly string[];
}

export interface CacheSummary {
  readonly layer: number;
  readonly kind: KvLayerInfo['kind'];
  /** Tokens it looks back, null for all. */
  readonly window: number | null;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Of latents: how many of those numbers are the values too. */
  readonly valueDim?: number;
  readonly keyFormat: string;
  readonly valueFormat: string;
  /** Bytes of one token's K over all heads: codes, scales, biases, norms and padding. */
  readonly keyBytes: number;
  readonly valueBytes: number;
  /** Of both. */
  readonly bytesPerToken: number;
  /** Of a recurrent layer: bytes of a sequence's state. */
  readonly stateBytes?: number;
  /** Why the layer has another format than was asked for. */
  readonly reason?: string;
}

export interface CacheGroupSummary {
  /** Tokens that its layers see: KV behind them is given back; null where all is kept. */
  readonly window: number | null;
  readonly layers: readonly number[];
  /** Bytes of KV that one token takes in its layers. */
  readonly bytesPerToken: number;
  /** It is the float head: the first so many tokens of each sequence. Absent: no head. */
  readonly head?: number;
  /** It is the float tail: the newest `window` tokens of each sequence, besides. Absent: no tail. */
  readonly tail?: boolean;
  /** Bytes of state that a sequence takes in its layers, however long it is: 0 unless they are recurrent. */
  readonly stateBytes: number;
}

export interface ModelSummary {
  readonly architecture: string;
  readonly family: string;
  readonly layers: number;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vocabSize: number;
  readonly tied: boolean;
  readonly maxContext: number;
  readonly rope: string;
  readonly parameters: number;
  /** Those that one token is computed with: of experts only the chosen. */
  readonly activeParameters: number;
  /** Experts of a layer and those that a token is given to, null where there are none. */
  readonly experts: ExpertStack | null;
  readonly weightBytes: number;
  /** Bytes of those that stay in host memory: the experts of the first layers, where that is asked for. */
  readonly hostBytes: number;
  /** Bytes of weights that a step of one row reads: of experts the chosen, of the embedding a row. */
  readonly activeBytes: number;
  readonly weights: readonly WeightSummary[];
  readonly cache: readonly CacheSummary[];
  /** Bytes of KV that one token takes in all layers. */
  readonly kvBytesPerToken: number;
  /** Layers that keep the same positions, and so share blocks. */
  readonly groups: readonly CacheGroupSummary[];
  /** Sequences of fewer than `start` tokens are kept as floats in every layer; null if none are. */
  readonly floatStart: {
    readonly start: number;
    readonly dtype: string;
    readonly bytesPerToken: number;
  } | null;
}

/**
 * Summarises a model. Reads no weights; checks them as loading does. `can`: of the device.
 *
 * @throws KvantError as `loadModel` does for missing, misshapen or extra tensors; `kv-options-invalid`, `kv-layer-unknown`,
 *   `kv-tail-unsupported`; `invalid-option` for `cpuExperts`
 */
export function inspectModel(
  source: WeightSource,
  { facts, layout }: ModelDefinition,
  options: {
    readonly quantize?: AffineSpec;
    readonly kv?: KvOptions;
    readonly can?: Pick<DeviceInfo, 'floatHeads' | 'floatTails'>;
    /** The experts of so many layers stay in host memory. */
    readonly cpuExperts?: number;
  } = {},
): ModelSummary {
  const resolved = resolveWeights(source, layout, options.quantize);
  const hosted = hostMatrices(layout, facts, options.cpuExperts ?? 0);
  const weights = MATRIX_KINDS.map((kind) => summarize(source, kind, resolved.matrices));
  const small = { parameters: 0, bytes: 0 };
  for (const { source: vector } of resolved.vectors) small.parameters += vector.length;
  for (const { biases } of resolved.matrices)
    for (const bias of biases) small.parameters += bias?.length ?? 0;
  // Held as f32 on the device.
  small.bytes = small.parameters * 4;
  const all: WeightSummary[] = [...weights, { kind: 'norms and biases', ...small, formats: ['f32'] }];

  const float = { kind: 'float', dtype: 'f16' } as const;
  const plan = planKvLayers(
    layout.cache,
    readKvOptions(options.kv ?? {}),
    float,
    facts.maxPositions,
    undefined,
    options.can,
  );
  const cache = layout.cache.map(({ layer, kvHeads, headDim, valueDim, window }, place): CacheSummary => {
    const { kind, key, value, keyBytes, valueBytes, stateBytes, reason } = plan.info[place]!;
    return {
      layer,
      kind,
      window,
      kvHeads,
      headDim,
      ...(valueDim === undefined ? {} : { valueDim }),
      keyFormat: key,
      valueFormat: value,
      keyBytes,
      valueBytes,
      bytesPerToken: keyBytes + valueBytes,
      ...(stateBytes === undefined ? {} : { stateBytes }),
      ...(reason === undefined ? {} : { reason }),
    };
  });
  const { architecture, family, layers, hiddenSize, intermediateSize, heads, kvHeads, headDim } = facts;
  return {
    architecture,
    family,
    layers,
    hiddenSize,
    intermediateSize,
    heads,
    kvHeads,
    headDim,
    vocabSize: facts.vocabSize,
    tied: facts.tied,
    maxContext: facts.maxPositions,
    rope: facts.rope,
    parameters: parameterCount(layout),
    activeParameters: parameterCount(layout, true),
    experts: layout.matrices.find(({ kind }) => kind === 'experts')?.experts ?? null,
    activeBytes: small.bytes + activeBytes(resolved.matrices),
    weightBytes: all.reduce((sum, { bytes }) => sum + bytes, 0),
    hostBytes: resolved.matrices
      .filter(({ spec }) => hosted.has(spec.key))
      .flatMap(({ parts }) => parts)
      .reduce((sum, part) => sum + sourceBytes(part), 0),
    weights: all.filter(({ parameters }) => parameters > 0),
    cache,
    kvBytesPerToken: cache.reduce((sum, { bytesPerToken }) => sum + bytesPerToken, 0),
    groups: plan.groups.map((group) => ({
      window: group.window,
      layers: group.layers.map((place) => layout.cache[place]!.layer),
      bytesPerToken: group.state ? 0 : kvBlockBytes(groupLayers(plan, group), 1),
      stateBytes: group.state ? kvBlockBytes(groupLayers(plan, group), 1) : 0,
      ...(group.head === undefined ? {} : { head: group.head }),
      ...(group.tail ? { tail: true } : {}),
    })),
    floatStart:
      plan.floatStart === null
        ? null
        : { ...plan.floatStart, bytesPerToken: floatStartBlockBytes(plan.layers, plan.floatStart.dtype, 1) },
  };
}

/** `f16`, `4-bit (group 64)`, or `4-bit k-quant`. */
function matrixFormatName(format: MatrixFormat): string {
  switch (format.kind) {
    case 'float':
      return format.dtype;
    case 'affine':
      return `${format.bits}-bit (group ${format.groupSize})`;
    case 'k-quant':
      return `${format.bits}-bit k-quant`;
    case 'symmetric':
      return `${format.bits}-bit symmetric (group ${format.groupSize})`;
    case 'lut4':
      return `4-bit table ${format.table} (group ${lut4Group(format)})`;
  }
}

/** `4-bit (group 32)`, or `Q4_0, 4.5 bits a weight, as 4-bit (group 32), 5 bits`. */
function partFormatName(source: WeightSource, part: MatrixSource): string {
  const made = matrixFormatName(part.format);
  const stored = source.info(part.name);
  // Codes in safetensors files are words, and what they mean is what they become.
  if (stored?.byteLength === undefined || !/^[A-Z0-9]+_/.test(stored.dtype)) return made;
  const bits = (bytes: number): string => `${Math.round((bytes * 800) / (part.rows * part.cols)) / 100} bits`;
  return `${stored.dtype}, ${bits(stored.byteLength)} a weight, as ${made}, ${bits(sourceBytes(part))}`;
}

function activeBytes(matrices: ReturnType<typeof resolveWeights>['matrices']): number {
  let sum = 0;
  for (const { spec, parts } of matrices) {
    const bytes = parts.reduce((all, part) => all + sourceBytes(part), 0);
    const { experts, use } = spec;
    const rows = parts.reduce((all, part) => all + part.rows, 0);
    const share = use === 'embedding' ? 1 / rows : experts === undefined ? 1 : experts.chosen / experts.count;
    sum += bytes * share;
  }
  return sum;
}

function summarize(
  source: WeightSource,
  kind: MatrixKind,
  matrices: ReturnType<typeof resolveWeights>['matrices'],
): WeightSummary {
  let parameters = 0;
  let bytes = 0;
  const formats = new Map<string, number>();
  for (const { spec, parts } of matrices) {
    if (spec.kind !== kind) continue;
    for (const part of parts) {
      const size = sourceBytes(part);
      const name = partFormatName(source, part);
      parameters += part.rows * part.cols;
      bytes += size;
      formats.set(name, (formats.get(name) ?? 0) + size);
    }
  }
  const names = [...formats].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  return { kind, parameters, bytes, formats: names };
}
