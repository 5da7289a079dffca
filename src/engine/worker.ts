/** The script of the engine's thread. */

import { parentPort } from 'node:worker_threads';
import { EngineHost } from './host.js';
import type { ToHost } from './messages.js';

const port = parentPort;
if (port === null) throw new Error('engine/worker.js runs as a worker thread only');
const host = new EngineHost((message) => port.postMessage(message));
port.on('message', (message: ToHost) => host.receive(message));
