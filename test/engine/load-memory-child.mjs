// What loading costs a process in memory: `node … JSON`, with `small` and `large`, models by path, and options of Engine.load.
// Says the resident bytes before the large one, the most that there ever were, and what its device holds: of this process alone, where
// `resourceUsage` counts those that its parent had when it was forked. Of the small one are code and
// tokenizer: what is not weights is there when the large one begins.
import { readFileSync } from 'node:fs';
import { Engine } from '../../dist/index.js';

const { small, large, options } = JSON.parse(process.argv[2]);
await (await Engine.load(small, options)).close();
globalThis.gc();
const before = process.memoryUsage.rss();
const engine = await Engine.load(large, options);
const { device } = await engine.stats();
const peak = Number(/VmHWM:\s*(\d+) kB/.exec(readFileSync('/proc/self/status', 'utf8'))[1]) * 1024;
const weights = engine.info.model.weightBytes;
console.log(JSON.stringify({ before, peak, device: device.peakBytes, weights }));
await engine.close();
