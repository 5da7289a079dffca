/** An Engine on this thread and on the oracle device, with the demo model's tokenizer and template. */
import { Engine } from '../../src/engine/engine.js';
import type { Delta, EngineOptions } from '../../src/engine/types.js';
import { KvantError } from '../../src/errors.js';
import { OracleDevice } from './oracle-device.js';

export const MODEL = new URL('../../models/demo-text', import.meta.url).pathname;
export const model = { vocab: 4096 };
export const EOS = [4083, 4085];

export async function loadOracle(
  options: EngineOptions = {},
  maxBlocks = Number.POSITIVE_INFINITY,
): Promise<{ engine: Engine; device: OracleDevice }> {
  const device = new OracleDevice({ ...model, maxBlocks });
  device.keepLog = false;
  const engine = await Engine.load(
    MODEL,
    { maxRows: 4, maxContext: 512, ...options, worker: false },
    { makeDevice: async () => ({ device, reason: 'a test' }) },
  );
  return { engine, device };
}

export async function read(deltas: AsyncIterable<Delta>): Promise<Delta[]> {
  const list: Delta[] = [];
  for await (const delta of deltas) list.push(delta);
  return list;
}

export async function refusal(promise: Promise<unknown>): Promise<KvantError> {
  const error: unknown = await promise.then(
    () => new Error('was taken'),
    (reason) => reason,
  );
  if (error instanceof KvantError) return error;
  throw error;
}
