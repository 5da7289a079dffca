/** docs/operating.md lists what /metrics has. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { ServerMetrics } from '../../src/server/metrics.js';

it('the page of metrics has each of them with its help, and no other', async () => {
  const memory = { weights: 0, caches: [0], floatStart: 0, activations: 0, total: 0, deviceBytes: 0 };
  const page = readFileSync(new URL('../../docs/operating.md', import.meta.url), 'utf8');
  const rows = [...page.matchAll(/^\| `(kvant_\w+)`[^|]*\| ([^|]+?) *\|$/gm)];
  const metrics = await new ServerMetrics(memory).registry.getMetricsAsJSON();
  expect(rows.map(([, name, help]) => `${name}: ${help}.`).sort()).toEqual(
    metrics.map(({ name, help }) => `${name}: ${help}`).sort(),
  );
});
