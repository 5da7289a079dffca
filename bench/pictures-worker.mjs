// The engine's thread, which tells what each piece of work for pictures took.
import { BroadcastChannel } from 'node:worker_threads';

const dist = process.env.KVANT_DIST ?? '../dist';
const { pieces } = await import(new URL(`${dist}/engine/vision/pieces.js`, import.meta.url));
const channel = new BroadcastChannel('kvant pieces');
channel.unref();
pieces.seen = (piece) => channel.postMessage(piece);
await import(new URL(`${dist}/engine/worker.js`, import.meta.url));
