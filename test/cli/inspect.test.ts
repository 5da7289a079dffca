/** `kvant inspect`: what a model is, and what it takes. */
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { kvant } from './kvant.js';

const demo = 'models/demo-text';

describe('kvant inspect', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kvant-cli-'));
  });
  afterAll(async () => {
    await rm(folder, { recursive: true });
  });

  it('plans the memory of a GPU that it cannot see', async () => {
    const args = ['inspect', demo, '--device', 'webgpu'];
    const unknown = await kvant(args);
    expect([unknown.code, unknown.stdout.includes('tokens a GiB')]).toEqual([0, true]);
    expect(JSON.parse((await kvant([...args, '--json'])).stdout).fit).toBeNull();
    // 4096 heads of K at f16 in each of 8 layers: what WebGPU binds is used up long before a TiB is.
    const { fit } = JSON.parse((await kvant([...args, '--json', '--memory', '1024GiB'])).stdout);
    expect(fit.kvTokens).toBe(Math.floor((2 ** 31 - 4) / 512));
    const beside = JSON.parse((await kvant(['inspect', demo, '--json', '--memory', '1024GiB'])).stdout);
    expect(beside.fit.kvTokens).toBeGreaterThan(fit.kvTokens);
  });

  it('inspects a model', async () => {
    const { code, stdout } = await kvant(['inspect', demo, '--json', '--memory', '1GiB']);
    expect(code).toBe(0);
    const info = JSON.parse(stdout);
    expect(info).toMatchObject({
      architecture: 'Qwen3ForCausalLM',
      layers: 8,
      headDim: 128,
      tied: true,
      kvBytesPerToken: 8192,
    });
    expect(info.cache).toHaveLength(8);
    expect(info.fit.kvTokens).toBeGreaterThan(10_000);
    const { memory } = info.serve;
    expect(memory.caches).toEqual([info.serve.kvBytes]);
    expect(memory.total).toBe(memory.weights + info.serve.kvBytes + memory.activations);
    const text = (await kvant(['inspect', demo])).stdout;
    expect(text).toContain('layers 0–7: full attention');
    expect(text).toMatch(/takes 30 MiB of weights, [\d.]+ [MG]iB of KV, about 4\.0 MiB of activations: /);
    expect(text).toContain('temperature 0.7, top_k 20, top_p 0.95');
    expect(info.sampling).toEqual({ doSample: true, temperature: 0.7, topK: 20, topP: 0.95, ignored: [] });
    const stretched = ['inspect', demo, '--json', '--rope-scale', '2', '--hf-overrides', '{"rope_theta": 7}'];
    expect(JSON.parse((await kvant(stretched)).stdout)).toMatchObject({
      family: 'qwen3',
      maxContext: 2 * info.maxContext,
      rope: expect.stringMatching(/linear.*7/),
    });
    const model = join(folder, 'beams');
    await cp(demo, model, { recursive: true });
    await writeFile(join(model, 'generation_config.json'), '{"top_p": 0.5, "num_beams": 4}');
    const beams = (await kvant(['inspect', model])).stdout;
    expect(beams).toMatch(/sampling +top_p 0\.5\n +of generation_config\.json left out: num_beams/);
  });

  it('counts no more of a sequence than its windows keep', async () => {
    const model = join(folder, 'sliding');
    await cp(new URL('../fixtures/models/mistral-window', import.meta.url), model, { recursive: true });
    const config = JSON.parse(await readFile(join(model, 'config.json'), 'utf8'));
    await writeFile(join(model, 'config.json'), JSON.stringify({ ...config, max_position_embeddings: 8192 }));
    const args = ['inspect', model, '--memory', '1GiB'];
    const { groups, fit } = JSON.parse((await kvant([...args, '--json'])).stdout);
    expect(groups).toMatchObject([{ window: 64 }]);
    // Blocks of 16 for 63 tokens before the next one and two chunks of 256.
    const kept = (Math.ceil((63 + 512) / 16) + 1) * 16;
    expect(fit.sequenceBytes).toBe(kept * groups[0].bytesPerToken);
    expect(fit.fullContexts).toBe(Math.floor(fit.kvBytes / fit.sequenceBytes));
    expect((await kvant(args)).stdout).toContain('behind 64 tokens it is given back');
  });

  it('counts the groups of a model of full and sliding layers apart', async () => {
    const model = join(folder, 'mixed');
    await cp(new URL('../fixtures/models/gemma3-list', import.meta.url), model, { recursive: true });
    const config = JSON.parse(await readFile(join(model, 'config.json'), 'utf8'));
    await writeFile(
      join(model, 'config.json'),
      JSON.stringify({ ...config, max_position_embeddings: 32_768 }),
    );
    const args = ['inspect', model, '--memory', '1GiB'];
    const { groups, fit } = JSON.parse((await kvant([...args, '--json'])).stdout);
    // K and V of one head of 32 at f16 are 128 bytes a token and layer.
    expect(groups).toEqual([
      { window: null, layers: [2], bytesPerToken: 128, stateBytes: 0 },
      { window: 32, layers: [0, 1, 3], bytesPerToken: 3 * 128, stateBytes: 0 },
    ]);
    const kept = (Math.ceil((31 + 512) / 16) + 1) * 16;
    expect(fit.sequenceBytes).toBe(32_768 * 128 + kept * 3 * 128);
    // For shorter sequences: a window of 32 is in four blocks at most, with two steps under way.
    const shorter = [...args, '--max-context', '4096'];
    const { sequence, serve } = JSON.parse((await kvant([...shorter, '--json'])).stdout);
    expect(sequence).toEqual({
      tokens: 4096,
      bytes: 4096 * 128 + kept * 3 * 128,
      settledBytes: 4096 * 128 + 4 * 16 * 3 * 128,
      wholeBytes: 4096 * 4 * 128,
    });
    expect(serve.maxContext).toBe(4096);
    const text = (await kvant(shorter)).stdout;
    expect(text).toContain(
      '512 B a token, 536 KiB at 4096 tokens (722 KiB while the prompt is computed, 2.0 MiB if',
    );
    expect(text).toMatch(/ layer 2: full attention, K f16/);
  });

  it('counts experts that stay in host memory apart', async () => {
    const model = 'test/fixtures/models/qwen3-moe';
    const args = ['inspect', model, '--device', 'webgpu', '--memory', '1GiB'];
    const read = async (...more: string[]) => JSON.parse((await kvant([...args, ...more, '--json'])).stdout);
    const { weights, weightBytes, hostBytes, fit, serve } = await read();
    expect(hostBytes).toBe(0);
    // Of two layers: the other one is dense.
    const each = weights.find(({ kind }: { kind: string }) => kind === 'experts').bytes / 2;
    const one = await read('--cpu-experts', '1');
    expect(one.hostBytes).toBe(each);
    expect(one.weightBytes).toBe(weightBytes);
    expect(one.fit.weightBytes).toBe(fit.weightBytes - each);
    expect(one.serve.memory.weights).toBe(serve.memory.weights - each);
    expect(one.serve.memory.host).toBe(each);
    expect((await kvant([...args, '--cpu-experts', '1'])).stdout).toContain('of experts in host memory');
  });

  it('reports the effective KV format of each layer, padding counted, and why', async () => {
    const args = ['inspect', demo, '--kv-bits', '3.5', '--json'];
    const { cache, kvBytesPerToken } = JSON.parse((await kvant(args)).stdout);
    // 2 heads of 128: 48 bytes of codes and a 2-byte norm for K, 64 and 2 for V.
    expect(cache[0]).toMatchObject({
      keyFormat: 'turbo3',
      valueFormat: 'turbo4',
      keyBytes: 100,
      valueBytes: 132,
    });
    expect(cache[7]).toMatchObject({
      keyFormat: 'f16',
      bytesPerToken: 1024,
      reason: expect.stringMatching(/last/),
    });
    expect(kvBytesPerToken).toBe(7 * 232 + 1024);
    const mixed = [
      'inspect',
      demo,
      '--kv-bits',
      '8',
      '--kv-value-bits',
      '4',
      '--kv-value-scheme',
      'turboquant',
    ];
    const text = (await kvant([...mixed, '--kv-group-size', '32', '--kv-skip-layers', '0,-1'])).stdout;
    expect(text).toContain('layers 1–6: full attention, K affine8-g32, V turbo4, 2 × 128, 420 B a token');
    expect(text).toMatch(/layers 0, 7: .*K f16, V f16.*layers to skip/);
    const late = ['inspect', demo, '--kv-bits', '4', '--quantized-kv-start', '500'];
    expect((await kvant(late)).stdout).toContain('f16 in every layer, 8192 B a token, before 500 tokens');
  });
});
