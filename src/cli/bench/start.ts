/**
 * How long the command takes from its start to the first token, and what memory the engine takes: measured from
 * outside, on processes as users start them, in turns with an empty process and with a bare read of the weights.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync, readdirSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { DeviceKind } from '../../device/device.js';
import type { EngineOptions } from '../../engine/types.js';
import { KvantError } from '../../errors.js';
import { chooseShards } from '../../weights/shards.js';
import { workerUrl } from '../../worker-url.js';

export interface StartCase {
  /** The model as the user names it. */
  readonly model: string;
  /** The same on disk. */
  readonly folder: string;
  readonly prompt: string;
  /** Flags of the engine, passed on to `kvant generate` as they are. */
  readonly flags: readonly string[];
  /** What they say. */
  readonly options: EngineOptions;
}

/** One turn: milliseconds. */
export interface StartRound {
  /** `node -e 0`, from its start to its end. */
  readonly node: number;
  /** All bytes of the weights, read by position. */
  readonly read: number;
  /** `kvant generate`, from its start to the first byte on its standard output. */
  readonly firstToken: number;
}

/** What a process that loads the model by itself says of it. Bytes and milliseconds. */
export interface StartProbe {
  readonly device: string;
  readonly kind: DeviceKind;
  readonly loadMs: number;
  /** Bytes of the weights on the device. */
  readonly weights: number;
  /** Bytes of the KV cache. */
  readonly kv: number;
  /** All bytes that the device counts: weights, KV, activations, scratch. */
  readonly deviceBytes: number;
  /** Resident when loaded, and the most until the first answer was over. */
  readonly loadedRss: number;
  readonly peakRss: number;
}

const PIECE = 4 << 20;

/** Milliseconds of an empty process. */
export async function emptyProcess(): Promise<number> {
  const startedAt = performance.now();
  const child = spawn(process.execPath, ['-e', '0'], { stdio: 'ignore' });
  await ended(child, 'node -e 0', () => '');
  return performance.now() - startedAt;
}

/** Bytes of the weights' files, and milliseconds to read them all into one piece of memory. */
export function bareRead(folder: string): { readonly bytes: number; readonly ms: number } {
  const names = chooseShards(readdirSync(folder));
  const piece = new Uint8Array(PIECE);
  const startedAt = performance.now();
  let bytes = 0;
  for (const name of names) {
    const file = openSync(join(folder, name), 'r');
    try {
      for (let at = 0, got = -1; got !== 0; at += got) {
        got = readSync(file, piece, 0, PIECE, at);
        bytes += got;
      }
    } finally {
      closeSync(file);
    }
  }
  return { bytes, ms: performance.now() - startedAt };
}

/** Milliseconds from the start of `kvant generate` to its first byte. Errors: `bench-start-failed`. */
export async function firstToken({ model, prompt, flags }: StartCase): Promise<number> {
  const main = fileURLToPath(workerUrl('../main.js', import.meta.url));
  const asked = ['--prompt', prompt, '--temperature', '0', '--max-tokens', '16'];
  const startedAt = performance.now();
  const child = spawn(process.execPath, [main, 'generate', model, ...flags, ...asked], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let first = Number.NaN;
  child.stdout.on('data', () => {
    if (Number.isNaN(first)) first = performance.now() - startedAt;
  });
  await ended(child, 'kvant generate', gathered(child));
  return first;
}

/** Loads the model and answers once in a process of its own. Errors: `bench-start-failed`. */
export async function probe({ model, prompt, options }: StartCase): Promise<StartProbe> {
  const script = fileURLToPath(workerUrl('./start-probe.js', import.meta.url));
  const child = spawn(process.execPath, [script, JSON.stringify({ model, prompt, options })], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (part: string) => {
    text += part;
  });
  await ended(child, 'the engine', gathered(child));
  return JSON.parse(text) as StartProbe;
}

function gathered(child: ChildProcess): () => string {
  let text = '';
  child.stderr?.setEncoding('utf8').on('data', (part: string) => {
    text += part;
  });
  return () => text.trim();
}

function ended(child: ChildProcess, what: string, said: () => string): Promise<void> {
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code, signal) => {
      if (code === 0) resolve();
      else
        reject(
          new KvantError(
            'bench-start-failed',
            `${what} ended with ${signal ?? `code ${code}`}: ${said() || 'it said nothing'}`,
            {
              kind: 'device',
              fix: 'Run kvant generate with the same model and flags, and mend what it says.',
            },
          ),
        );
    });
  });
}
