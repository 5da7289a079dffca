import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import type { JsonObject } from '../../weights/folder-files.js';
import { parseModelConfig } from '../families.js';

const config = JSON.parse(readFileSync('test/fixtures/models/hy3/config.json', 'utf8')) as JsonObject;

it('takes what published configs say beside what is computed', () => {
  const stated = {
    qk_norm: true,
    route_norm: true,
    moe_router_use_sigmoid: true,
    num_nextn_predict_layers: 1,
  };
  expect(parseModelConfig({ ...config, ...stated }).facts.family).toBe('hy3');
});

it.each(['qk_norm', 'route_norm', 'moe_router_use_sigmoid'])('refuses %s: false by name', (name) => {
  expect(() => parseModelConfig({ ...config, [name]: false })).toThrow(
    expect.objectContaining({ code: 'model-config-unsupported', where: name }),
  );
});
