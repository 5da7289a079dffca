// A device that computes nothing: every row draws the next of a row of ids, and a step is over at once or after a fixed time.
// What is left is what engine and server cost by themselves.
import { setTimeout as sleep } from 'node:timers/promises';
import { StepResult } from '../dist/device/step-result.js';

/** `stepMs` 0: at once. */
export function instantDevice({ stepMs = 0, vocab = 4096 } = {}) {
  const pool = (spec) => ({
    spec,
    bytes: 0,
    storage: 'none',
    setBlocks() {},
    convert: async () => {},
    copy: async () => {},
    read: async (blocks) => Array.from(blocks, () => new Uint8Array(0)),
    write: async () => {},
    prepare: async () => {},
    dispose() {},
  });
  let due = 0;
  let drawn = 0;
  let computed = Promise.resolve();
  /** The device has computed one more step. */
  const compute = async () => {
    if (stepMs === 0) return;
    const now = performance.now();
    due = Math.max(now, due) + stepMs;
    await sleep(due - now);
  };
  const draw = ({ outputCount }) => {
    const ids = new Uint32Array(outputCount);
    // Ordinary tokens of the demo model: no bytes, nothing special.
    for (let row = 0; row < outputCount; row++) ids[row] = 300 + ((drawn++ * 31) % (vocab - 800));
    return new StepResult(ids, outputCount);
  };
  return {
    info: {
      kind: 'webgpu',
      name: 'instant',
      features: [],
      precision: 'default',
      deterministic: true,
      memoryBytes: 2 ** 33,
      attentionSplit: 64,
      adapters: 0,
    },
    lost: new Promise(() => {}),
    place() {},
    loadMatrix: async (parts) => ({
      kind: 'matrix',
      rows: parts.reduce((sum, { rows }) => sum + rows, 0),
      cols: parts[0].cols,
      bytes: 0,
    }),
    loadVector: async ({ length }) => ({ kind: 'vector', length }),
    createKvPool: pool,
    createFeatureSlab: ({ rows, cols }) => ({ rows, cols, bytes: 0, write() {}, dispose() {} }),
    stats: () => ({ buffers: 0, bytes: 0, peakBytes: 0, samplerBytes: 0, plans: 0 }),
    compile: async () => ({
      sampler: null,
      prepare: async () => {},
      submit: (inputs) => {
        const result = draw(inputs);
        return compute().then(() => result);
      },
      forward: () => {
        computed = compute();
      },
      computed: () => computed,
      sample: (inputs) => {
        const result = draw(inputs);
        return computed.then(() => result);
      },
      write() {},
      fill: async () => {},
      clear() {},
      store() {},
      read: () => Promise.reject(new Error('nothing is kept')),
      dispose: async () => {},
    }),
    [Symbol.asyncDispose]: async () => {},
  };
}
