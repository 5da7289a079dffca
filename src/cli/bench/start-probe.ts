/** The process of `kvant bench start` that loads a model, answers once and says what memory it took. */
import { Engine } from '../../engine/engine.js';
import type { EngineOptions } from '../../engine/types.js';
import type { StartProbe } from './start.js';

const asked = JSON.parse(process.argv[2]!) as { model: string; prompt: string; options: EngineOptions };

const startedAt = performance.now();
const engine = await Engine.load(asked.model, asked.options);
const loadMs = performance.now() - startedAt;
const loadedRss = process.memoryUsage.rss();
const request = { temperature: 0, maxTokens: 16 };
const generation = engine.info.model.hasChatTemplate
  ? engine.chat({ ...request, messages: [{ role: 'user', content: asked.prompt }] })
  : engine.generate({ ...request, prompt: asked.prompt });
await generation.result;
const { info } = engine;
const result: StartProbe = {
  device: info.device.name,
  kind: info.device.kind,
  loadMs,
  weights: info.model.weightBytes,
  kv: info.kv.bytes,
  deviceBytes: (await engine.stats()).device.bytes,
  loadedRss,
  peakRss: process.resourceUsage().maxRSS * 1024,
};
await engine.close();
process.stdout.write(JSON.stringify(result));
