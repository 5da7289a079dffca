// The engine's thread on the instant device; KVANT_STEP_MS says how long a step takes.
import { parentPort } from 'node:worker_threads';
import { EngineHost } from '../dist/engine/host.js';
import { instantDevice } from './instant-device.mjs';

const device = instantDevice({ stepMs: Number(process.env.KVANT_STEP_MS ?? 0) });
const host = new EngineHost(
  (message) => parentPort.postMessage(message),
  async () => ({ device, reason: 'a benchmark' }),
);
parentPort.on('message', (message) => host.receive(message));
