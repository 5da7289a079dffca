/** What a loaded engine takes of its device's memory, and whether that is nearly all of it. */

import type { ModelFacts } from '../models/facts.js';
import type { LogEntry, MemoryUse } from './types.js';

/** From this share of the device's memory on, somebody should be told. */
const TIGHT = 0.9;

export interface MeasuredMemory {
  /** Bytes of the weights on the device, and of all that is there when load ends. */
  readonly weights: number;
  readonly total: number;
  /** Of each cache group, without float-start blocks. */
  readonly caches: readonly number[];
  /** Of the blocks that hold sequences before they are quantised. */
  readonly floatStart: number;
  /** What the device has; undefined where it does not say. */
  readonly deviceBytes: number | undefined;
  /** Of experts that stay in host memory, and what computes them. Absent: none stay there. */
  readonly host?: number;
}

/** What is neither weights nor cache holds activations, inputs of steps and scratch. */
export function memoryUse(measured: MeasuredMemory): MemoryUse {
  const { weights, total, caches, floatStart, deviceBytes, host } = measured;
  const kv = caches.reduce((sum, bytes) => sum + bytes, floatStart);
  return {
    deviceBytes: deviceBytes ?? null,
    weights,
    caches,
    floatStart,
    activations: Math.max(0, total - weights - kv),
    total,
    ...(host === undefined ? {} : { host }),
  };
}

/** A warning where the device is nearly full, with what would help most; null where it is not, or nobody knows. */
export function memoryWarning(use: MemoryUse, quantized: boolean): LogEntry | null {
  const { deviceBytes, weights, caches, floatStart, total } = use;
  if (deviceBytes === null || total <= TIGHT * deviceBytes) return null;
  const kv = caches.reduce((sum, bytes) => sum + bytes, floatStart);
  const fix =
    kv > weights || quantized
      ? 'Make the KV cache smaller: kvMemory (--kv-memory), maxContext (--max-context), maxRows (--max-rows), or a quantised cache (--kv-bits 8).'
      : 'Quantise the weights on load: quantize (--quantize 8 or 4).';
  return {
    level: 'warn',
    message: 'weights, KV cache and activations nearly fill the memory of the device',
    fields: { ...use, share: Number((total / deviceBytes).toFixed(2)), fix },
  };
}

/** What of a model says how wide its activations are. */
type ModelWidths = Pick<
  ModelFacts,
  'hiddenSize' | 'intermediateSize' | 'heads' | 'kvHeads' | 'headDim' | 'vocabSize'
>;

/**
 * Bytes that activations will take, told before anything is loaded: f32 rows of the tensors that live at once in a layer (the
 * residual, a product of it, and what that becomes), and of logits. A device that fuses or rounds takes somewhat more or less.
 */
export function estimateActivations(model: ModelWidths, batchTokens: number, rows: number): number {
  const { hiddenSize, intermediateSize, heads, kvHeads, headDim, vocabSize } = model;
  const attention = (2 * heads + 2 * kvHeads) * headDim;
  const widest = Math.max(attention, 3 * intermediateSize);
  return 4 * (batchTokens * (2 * hiddenSize + widest) + rows * vocabSize);
}
