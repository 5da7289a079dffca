// A process that writes blocks to a folder and reads what it finds there, until it is killed: `node … FOLDER SEED`.
// Says "go" once it writes, and ends with status 1 if a block is not what it should be.
import { createHash } from 'node:crypto';
import { DiskTier } from '../../dist/kv/disk/disk-tier.js';

const [folder, seed] = process.argv.slice(2);
const KEYS = 60;
const BYTES = 300_000;

/** The same as in the test: what block `i` is follows from i. */
function block(i) {
  const digest = createHash('sha256').update(`block ${i}`).digest();
  return {
    key: digest.toString('hex').slice(0, 32),
    tokens: Uint32Array.from({ length: 16 }, (_, t) => i * 100 + t),
    depth: i % 7,
    data: new Uint8Array(BYTES).map((_, d) => digest[d % 31] ^ (d >> 8)),
  };
}

const tier = await DiskTier.open({ folder, maxBytes: 25 * BYTES, signature: 'kill', queueBytes: 4 * BYTES });
let state = Number(seed);
const random = () => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return state / 2 ** 32;
};
for (let turn = 0; ; turn++) {
  const wanted = block(Math.floor(random() * KEYS));
  tier.offer(block(Math.floor(random() * KEYS)));
  if (turn === 0) console.log('go');
  const [data] = await tier.read([wanted], BYTES, wanted.depth, 1000);
  if (data !== undefined && Buffer.compare(data, wanted.data) !== 0) process.exit(1);
  await new Promise(setImmediate);
}
